#include "pytorch/python/comparison.h"

#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "tools/report/json.h"
#include "tools/report/report.h"
#include "tools/report/run_figures.h"
#include "tools/report/table.h"
#include "zero/zero.h"

namespace zero::pytorch {

namespace {

namespace py = pybind11;
using report::Comparison;

void begin(Comparison& comparison, const EngineReport& first,
           const std::vector<std::string>& variants) {
  comparison.ranks = std::ssize(first.ranks);
  comparison.parameters = first.parameter_count;
  for (const std::string& variant : variants)
    comparison.absent.push_back({variant, "it has not run to its end"});
}

void add(Comparison& comparison, const report::MeasuredRun& run) {
  comparison.variants.push_back(report::figures_of(run));
  std::erase_if(comparison.absent, [&](const auto& absent) { return absent.name == run.name; });
}

void note_failure(Comparison& comparison, const std::string& variant, const std::string& reason) {
  for (report::Absent& absent : comparison.absent)
    if (absent.name == variant) absent.reason = reason.substr(0, reason.find('\n'));
}

}  // namespace

void declare_comparison(py::module_& module) {
  py::class_<EngineReport>(module, "EngineReport")
      .def_readonly("parameter_count", &EngineReport::parameter_count);
  py::class_<report::MeasuredStep>(module, "MeasuredStep")
      .def(py::init<double, double, double, bool>(), py::arg("loss"), py::arg("gradient_norm"),
           py::arg("tokens_per_second"), py::arg("skipped"));
  py::class_<report::MeasuredRun>(module, "MeasuredRun")
      .def(py::init<std::string, std::vector<report::MeasuredStep>, std::int64_t, EngineReport,
                    EngineReport, std::uint64_t>(),
           py::arg("name"), py::arg("records"), py::arg("warm_up"), py::arg("after_warm_up"),
           py::arg("after_all"), py::arg("digest"));
  py::class_<Comparison>(module, "Comparison")
      .def(py::init<>())
      .def_readwrite("title", &Comparison::title)
      .def_readwrite("facts", &Comparison::facts)
      .def("begin", &begin, py::arg("first"), py::arg("variants"))
      .def("add", &add, py::arg("run"))
      .def("note_failure", &note_failure, py::arg("variant"), py::arg("reason"))
      .def("bits_equal", &report::bits_equal)
      .def("text", &report::text_of)
      .def("json", &report::json_of)
      .def("write", &report::write_report, py::arg("directory"));
  module.def("prepare_directory", &report::prepare_directory);
}

}  // namespace zero::pytorch
