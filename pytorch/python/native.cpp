// zerocore._native: the library's interface for the Python package. One class is for the ranks, one
// for a model in an engine; Python does everything else. Calls release the GIL, because they wait
// for peers, and must come from one thread.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/loaded_mpi/library.h"
#include "pytorch/python/comparison.h"
#include "pytorch/python/config.h"
#include "pytorch/python/engine_calls.h"
#include "pytorch/python/errors.h"
#include "pytorch/python/parameters.h"
#include "pytorch/python/pipelines.h"
#include "pytorch/python/planning.h"
#include "pytorch/python/ranks.h"
#include "pytorch/python/tensors.h"
#include "pytorch/python/weights.h"
#include "pytorch/sharded_parameters.h"
#include "pytorch/store_rendezvous.h"
#include "pytorch/tensor_device.h"
#include "tools/doctor/examination.h"
#include "tools/doctor/report.h"
#include "zero/monitor/diagnostics.h"
#include "zero/monitor/monitor.h"
#include "zero/zero.h"

namespace py = pybind11;

namespace {

using namespace zero;
using namespace zero::pytorch;

using Unlocked = py::call_guard<py::gil_scoped_release>;

// `parent` is the index of a unit, -1 for none.
struct PyUnit {
  std::string name;
  int parent;
  std::vector<PyParameter> parameters;
  std::vector<BufferDeclaration> buffers;
};

std::vector<UnitDeclaration> declarations_of(std::vector<PyUnit> units) {
  std::vector<UnitDeclaration> declarations;
  for (PyUnit& unit : units) {
    UnitDeclaration& declaration = declarations.emplace_back();
    declaration.name = unit.name.empty() ? root_unit : unit.name;
    declaration.parent = unit.parent;
    for (PyParameter& parameter : unit.parameters)
      declaration.parameters.push_back(declaration_of(std::move(parameter)));
    declaration.buffers = std::move(unit.buffers);
  }
  return declarations;
}

class Model final : public EngineCalls {
 public:
  Model(std::shared_ptr<Ranks> ranks, std::vector<PyUnit> units, const Config& config)
      : EngineCalls(std::move(ranks)),
        parameters_(std::make_unique<ShardedParameters>(declarations_of(std::move(units)),
                                                        tensor_device(ranks_->runtime()))) {
    parameters_->make_room(ranks_->runtime(), config);
    engine_ = std::make_unique<Engine>(ranks_->runtime(), parameters_->spec(), silent(config));
    parameters_->attach(ranks_->runtime(), *engine_);
  }

  ShardedParameters& parameters() {
    if (!parameters_) throw UsageError("the engine has ended");
    return *parameters_;
  }
  // Returns unsharded values to the program's tensors. Local; the engine ends with this object.
  void end_parameters() { parameters_.reset(); }

  void note_loss(double mean) { parameters_->micro_step().loss(mean); }

  // `max_norm` clips this step, in addition to the config. The returned norm is from before
  // clipping, and the loss NaN if the program has called no engine.backward(). `given`: whole
  // averaged gradients by parameter, fp32 on the CPU, used instead of those of backward.
  StepResult step(std::optional<double> learning_rate, const ValuesByGroup& groups,
                  std::optional<double> mean_over, std::optional<double> max_norm,
                  const std::map<std::string, at::Tensor>& given) {
    StepOptions options;
    options.learning_rate = learning_rate;
    options.groups = groups;
    options.mean_over = mean_over;
    double norm = 0;
    const std::int64_t drops = parameters_->drops();
    if (max_norm || !given.empty())
      options.inspect = [&, drops](Gradients& gradients) {
        if (!given.empty() && parameters_->drops() == drops) replace(gradients, given);
        if (max_norm) norm = clip(gradients, *max_norm);
        return Decision::apply;
      };
    const auto origins = parameters_->origins();
    StepResult result = parameters_->step(options).wait();
    if (origins.any() && !origins.scaled)
      result.loss = std::numeric_limits<double>::quiet_NaN();  // loss.backward() reports none
    if (max_norm && !result.skipped) result.grad_norm = norm;
    return result;
  }

  bool is_resident(const std::string& name, at::ScalarType type) {
    return with_type_of(dtype_of_tensor(name, type, false), [&](auto typed) {
      return engine_->resident<decltype(typed)>(name) != nullptr;
    });
  }
  // Takes part in an evaluation pass of the peers.
  void join_evaluation() {
    parameters_->reshard();
    engine_->evaluate().next(false);
  }
  // Ends the scopes of an open pass on all ranks. Call before the ranks exchange something that is
  // in no plan: a rank whose pass has used fewer units may be ahead of its peers. Collective.
  void settle() {
    parameters_->reshard();
    engine_->settle();
  }
  // Call before a collective call other than a pass or a step.
  void reshard() {
    parameters_->reshard();
    parameters_->adopt_changes();
  }

  at::Tensor read_gradient(const std::string& name, const std::vector<std::int64_t>& shape,
                           std::optional<double> mean_over) {
    at::Tensor whole = at::empty(shape, at::kFloat);
    engine_->read_gradient(name, {whole.mutable_data_ptr<float>(), std::size_t(whole.numel())},
                           mean_over);
    return whole;
  }

  at::Tensor read(const std::string& name, const std::string& what,
                  const std::vector<std::int64_t>& shape) {
    at::Tensor whole = at::empty(shape, at::kFloat);
    engine_->read(name, what, {whole.mutable_data_ptr<float>(), std::size_t(whole.numel())});
    return whole;
  }
  // `whole`: a contiguous tensor on ranks that receive.
  void gather(const std::string& name, const std::optional<at::Tensor>& whole, int only_rank) {
    std::span<std::byte> bytes;
    if (whole) bytes = {static_cast<std::byte*>(whole->mutable_data_ptr()), whole->nbytes()};
    engine_->gather(name, bytes, only_rank);
  }
  ChangeStream changes(std::optional<std::uint64_t> since, std::int64_t budget, int only_rank) {
    return engine_->changes(since, {.budget = budget, .only_rank = only_rank});
  }
  void write(const std::string& name, const at::Tensor& values) {
    const at::Tensor whole = values.detach().to(at::kCPU, at::kFloat).contiguous();
    engine_->write(name, {whole.const_data_ptr<float>(), std::size_t(whole.numel())});
    parameters_->settle();
  }
  void write_state(const std::string& name, const std::string& state, const at::Tensor& values) {
    const at::Tensor whole = values.detach().to(at::kCPU, at::kFloat).contiguous();
    engine_->write_state(name, state, {whole.const_data_ptr<float>(), std::size_t(whole.numel())});
  }

  // `names`: names in the file of parameters whose names differ there.
  std::vector<std::string> load_weights(const std::string& path, const std::string& allow_missing,
                                        const std::map<std::string, std::string>& names) {
    LoadOptions options;
    options.allow_missing = allow_missing;
    options.name_in_file = [&](std::string_view name) {
      const auto found = names.find(std::string(name));
      return found == names.end() ? std::string(name) : found->second;
    };
    std::vector<std::string> missing = engine_->load_weights(path, options);
    parameters_->settle();
    return missing;
  }
  void export_model(const std::string& directory, std::int64_t max_file_bytes) {
    ExportOptions options;
    options.max_file_bytes = max_file_bytes;
    engine_->export_model(directory, options);
  }

 private:
  static void replace(Gradients& gradients, const std::map<std::string, at::Tensor>& given) {
    gradients.edit([&](ParamShard shard) {
      const auto found = given.find(std::string(shard.name));
      if (found == given.end()) return;
      std::copy_n(found->second.const_data_ptr<float>() + shard.begin, shard.values.size(),
                  shard.values.begin());
    });
  }
  // Returns the norm before.
  static double clip(Gradients& gradients, double most) {
    const double norm = gradients.norm();
    const auto factor = static_cast<float>(most / (norm + 1e-6));
    if (factor < 1)
      gradients.edit([factor](ParamShard shard) {
        for (float& value : shard.values) value *= factor;
      });
    return norm;
  }

  void settle_parameters() override { parameters_->settle(); }

  // The parameters end before the engine, because they return the tensors' memory.
  std::unique_ptr<ShardedParameters> parameters_;
};

// Returns (name, shape, flat indices, values) of the next changes, in host memory; nothing at the
// end.
using PyChange = std::tuple<std::string, std::vector<std::int64_t>, at::Tensor, at::Tensor>;
std::optional<std::vector<PyChange>> next_changes(ChangeStream& stream) {
  std::vector<PyChange> changes;
  const bool more = stream.next([&](const ChangedValues& changed) {
    const auto count = std::ssize(changed.elements);
    const std::vector<std::int64_t> shape(changed.shape.begin(), changed.shape.end());
    const auto numbers =
        at::from_blob(const_cast<std::int64_t*>(changed.elements.data()), {count}, at::kLong);
    PyChange& change = changes.emplace_back(
        std::string(changed.name), shape,
        numbers.to(c10::multiply_integers(shape) > std::numeric_limits<std::int32_t>::max()
                       ? at::kLong
                       : at::kInt,
                   false, true),
        at::empty({count}, scalar_type(changed.dtype)));
    std::memcpy(std::get<3>(change).mutable_data_ptr(), changed.values.data(),
                changed.values.size());
  });
  return more ? std::optional(std::move(changes)) : std::nullopt;
}

// Python objects that threads without the GIL release.
template <class Object>
std::shared_ptr<py::object> shared_object(Object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            const py::gil_scoped_acquire locked;
            delete held;
          }};
}

// make_group(name, rank, size, seconds) returns a gloo group of torch.distributed.
MakeGroup group_maker(py::object make_group) {
  return [make = shared_object(std::move(make_group))](const std::string& name, int rank, int size,
                                                       std::chrono::milliseconds limit) {
    const py::gil_scoped_acquire locked;
    try {
      const py::object group = (*make)(name, rank, size, static_cast<double>(limit.count()) / 1e3);
      return c10::intrusive_ptr<c10d::Backend>::reclaim_copy(group.cast<c10d::Backend*>());
    } catch (py::error_already_set& error) {
      throw TopologyError(std::string("gloo, which carries messages between hosts, does not come "
                                      "up: ") +
                          error.what());
    }
  };
}

void declare_rendezvous(py::module_& module) {
  py::class_<StoreRendezvous, std::shared_ptr<StoreRendezvous>>(module, "Rendezvous")
      .def(py::init([](const py::object& store, int rank, int size, std::string place,
                       py::object make_group) {
             auto held = c10::intrusive_ptr<c10d::Store>::reclaim_copy(store.cast<c10d::Store*>());
             MakeGroup make = group_maker(std::move(make_group));
             const py::gil_scoped_release unlocked;
             return std::make_shared<StoreRendezvous>(std::move(held), rank, size, std::move(place),
                                                      std::move(make));
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("place"),
           py::arg("make_group"));
}

void declare_machine(py::module_& module) {
  module.def("text_of_report", &doctor::text_of, py::arg("report"));
  // Returns the JSON of this host, without ranks.
  module.def(
      "host_report", [] { return doctor::host_report(doctor::read_host({})); }, Unlocked());
  py::class_<comm::FoundMpi>(module, "FoundMpi")
      .def_readonly("name", &comm::FoundMpi::name)
      .def_readonly("version", &comm::FoundMpi::version)
      .def_readonly("path", &comm::FoundMpi::path)
      .def_readonly("problem", &comm::FoundMpi::problem);
  module.def("find_mpi", &comm::find_mpi, py::arg("folders"));
}

void declare_model(py::module_& module) {
  py::class_<ChangeStream>(module, "Changes")
      .def_property_readonly("since", &ChangeStream::since)
      .def_property_readonly("digest", &ChangeStream::digest)
      .def("next", &next_changes, Unlocked());
  py::class_<Model, EngineCalls>(module, "Model")
      .def(py::init([](std::shared_ptr<Ranks> ranks, const py::list& units, const Config& config) {
             std::vector<PyUnit> all;
             for (const py::handle unit : units) all.push_back(unit.cast<PyUnit>());
             const py::gil_scoped_release unlocked;
             return std::make_unique<Model>(std::move(ranks), std::move(all), config);
           }),
           py::arg("ranks"), py::arg("units"), py::arg("config"))
      .def(
          "pre_forward",
          [](Model& m, bool training, bool last, bool needs_scale) {
            m.parameters().pre_forward(training, last, needs_scale);
          },
          Unlocked())
      .def(
          "post_forward", [](Model& m) { m.parameters().post_forward(); }, Unlocked())
      .def(
          "take_scale", [](Model& m) { return m.parameters().loss_scale(); }, Unlocked())
      .def(
          "scale_of_losses", [](Model& m) { return m.engine().loss_scale(); }, Unlocked())
      .def("note_loss", &Model::note_loss, Unlocked())
      .def("mixes_origins", [](Model& m) { return m.parameters().origins().mixed(); })
      .def("begun", [](Model& m) { return m.parameters().begun(); })
      .def("is_before_backward", [](Model& m) { return m.parameters().is_before_backward(); })
      .def("is_recomputing", [](Model& m) { return m.parameters().is_recomputing(); })
      .def("by_hand", [](Model& m) { return m.parameters().origins().by_hand; })
      .def(
          "post_backward", [](Model& m) { m.parameters().post_backward(); }, Unlocked())
      .def("step", &Model::step, py::arg("learning_rate"), py::arg("groups"), py::arg("mean_over"),
           py::arg("max_norm"), py::arg("given"), Unlocked())
      .def(
          "abandon", [](Model& m) { m.parameters().abandon(); }, Unlocked())
      .def(
          "rethrow", [](Model& m) { m.parameters().rethrow(); }, Unlocked())
      .def("is_resident", &Model::is_resident, py::arg("name"), py::arg("dtype"), Unlocked())
      .def("join_evaluation", &Model::join_evaluation, Unlocked())
      .def("settle", &Model::settle, Unlocked())
      .def("reshard", &Model::reshard, Unlocked())
      .def(
          "drop_gradients", [](Model& m) { return m.parameters().drop_gradients(); }, Unlocked())
      .def(
          "check_unchanged", [](Model& m, bool trains) { m.parameters().check_unchanged(trains); },
          py::arg("trains"), Unlocked())
      .def("forget_values", [](Model& m) { m.parameters().forget_values(); })
      .def("end_parameters", &Model::end_parameters)
      .def("read_gradient", &Model::read_gradient, py::arg("name"), py::arg("shape"),
           py::arg("mean_over"), Unlocked())
      .def("read", &Model::read, py::arg("name"), py::arg("what"), py::arg("shape"), Unlocked())
      .def("gather", &Model::gather, py::arg("name"), py::arg("whole"), py::arg("only_rank"),
           Unlocked())
      .def("changes", &Model::changes, py::arg("since"), py::arg("budget"), py::arg("only_rank"),
           Unlocked())
      .def("write", &Model::write, py::arg("name"), py::arg("values"), Unlocked())
      .def("write_state", &Model::write_state, py::arg("name"), py::arg("state"), py::arg("values"),
           Unlocked())
      .def("drops", [](Model& m) { return m.parameters().drops(); })
      .def("has_gradients", [](Model& m) { return m.parameters().origins().any(); })
      .def(
          "use_memory",
          [](Model& m, const std::string& name, const std::optional<at::Tensor>& values) {
            m.parameters().use_memory(name, values);
          },
          Unlocked())
      .def("load_weights", &Model::load_weights, py::arg("path"), py::arg("allow_missing"),
           py::arg("names"), Unlocked())
      .def(
          "initialize_rest", [](Model& m) { m.parameters().initialize_rest(); }, Unlocked())
      .def("export_model", &Model::export_model, py::arg("directory"), py::arg("max_file_bytes"),
           Unlocked());
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.attr("torch_version") = ZERO_TORCH_VERSION;
  module.attr("has_cuda") = ZERO_ON_GPUS != 0;
  declare_tensors(module);
  declare_parameters(module);
  py::class_<BufferDeclaration>(module, "Buffer")
      .def(py::init([](std::string name, std::vector<at::Tensor> tensors,
                       std::vector<std::string> also_named) {
             return BufferDeclaration{std::move(name), std::move(tensors), std::move(also_named)};
           }),
           py::arg("name"), py::arg("tensors"), py::arg("also_named"));
  py::class_<PyUnit>(module, "Unit")
      .def(py::init<std::string, int, std::vector<PyParameter>, std::vector<BufferDeclaration>>(),
           py::arg("name"), py::arg("parent"), py::arg("parameters"), py::arg("buffers"));
  declare_errors(module);
  declare_machine(module);
  declare_weights(module);
  declare_planner(module);
  declare_config(module);  // before code that uses its classes
  declare_comparison(module);
  declare_rendezvous(module);
  declare_ranks(module);
  declare_engine_calls(module);
  declare_model(module);
  declare_pipelines(module);
}
