#include "pytorch/python/planning.h"

#include <pybind11/stl.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "tools/planner/table.h"

namespace {

namespace py = pybind11;
using namespace zero::planner;

struct Terms {
  int ranks = 8, per_node = 8;
  std::string device = "h100", rows, kernels;
  std::optional<std::int64_t> micro_batch;
  std::int64_t sequence_length = 0;
  bool recompute = false;
  bool as_text = false;  // the command's table instead of JSON
};

// Returns the rows as JSON, or the table. Notices about the model's files go to standard error.
std::string plan(ModelShape shape, const std::string& config, const Terms& terms) {
  Request request;
  request.config_text = config;
  request.shape = std::move(shape);
  request.cluster = {load_device(terms.device), terms.ranks, terms.per_node};
  request.micro_batch = terms.micro_batch;
  request.sequence = terms.sequence_length;
  check_sequence(request.shape, request.sequence);
  request.recompute = terms.recompute;
  if (!terms.kernels.empty()) request.kernels = kernels_named(terms.kernels);
  std::vector<PlanRow> rows =
      terms.rows.empty() ? all_rows(request.cluster) : parse_rows(terms.rows);
  if (terms.rows.empty() && !config.empty()) rows.insert(rows.begin(), PlanRow{"config"});
  const PlanResult result = make_plan(request, rows, {});
  if (terms.as_text) return text_of(result, Rows::all);
  for (const std::string& notice : request.shape.notices)
    std::fprintf(stderr, "zerocore: notice: %s\n", notice.c_str());
  return json_of(result);
}

using TensorList = std::vector<std::tuple<std::string, zero::Shape, bool>>;

ModelShape shape_of(const std::string& name, const TensorList& tensors,
                    const std::vector<std::string>& units) {
  std::vector<NamedTensor> named;
  for (const auto& [tensor, shape, trainable] : tensors)
    named.push_back({tensor, shape, trainable});
  return shape_of_tensors(name, named, units);
}

}  // namespace

void declare_planner(py::module_& module) {
  py::class_<Terms>(module, "PlanTerms")
      .def(py::init<>())
      .def_readwrite("ranks", &Terms::ranks)
      .def_readwrite("per_node", &Terms::per_node)
      .def_readwrite("device", &Terms::device)
      .def_readwrite("rows", &Terms::rows)
      .def_readwrite("kernels", &Terms::kernels)
      .def_readwrite("micro_batch", &Terms::micro_batch)
      .def_readwrite("sequence_length", &Terms::sequence_length)
      .def_readwrite("recompute", &Terms::recompute)
      .def_readwrite("as_text", &Terms::as_text);
  py::class_<ModelShape>(module, "ModelShape");
  module.def("shape_of_tensors", &shape_of);
  module.def("load_shape", &load_shape);
  module.def("plan", &plan);
}
