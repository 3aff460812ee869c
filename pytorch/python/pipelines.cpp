#include "pytorch/python/pipelines.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pytorch/python/config.h"
#include "pytorch/python/engine_calls.h"
#include "pytorch/python/parameters.h"
#include "pytorch/stage_parameters.h"

namespace py = pybind11;

namespace zero::pytorch {

namespace {

using Unlocked = py::call_guard<py::gil_scoped_release>;

// A parameter of any stage, without its tensors.
StageParameter stage_parameter(PyParameter parameter, Shape shape) {
  ParameterDeclaration declared = declaration_of(std::move(parameter));
  return {std::move(declared.name), std::move(shape), std::move(declared.options),
          std::move(declared.also_named)};
}

class Pipeline final : public EngineCalls {
 public:
  Pipeline(std::shared_ptr<Ranks> ranks, std::vector<StageUnit> units, std::vector<PyParameter> own,
           const Config& config)
      : EngineCalls(std::move(ranks)) {
    std::vector<ParameterDeclaration> tensors;
    for (PyParameter& parameter : own) tensors.push_back(declaration_of(std::move(parameter)));
    Runtime& runtime = ranks_->runtime();
    parameters_ = std::make_unique<StageParameters>(std::move(units), std::move(tensors),
                                                    tensor_device(runtime));
    Config own_config = silent(config);
    own_config.pipeline.partition = parameters_->partition();
    engine_ = std::make_unique<Engine>(runtime, parameters_->spec(), own_config);
    parameters_->attach(runtime, *engine_);
  }

  StageParameters& parameters() {
    if (!parameters_) throw UsageError("the engine has ended");
    return *parameters_;
  }
  void end_parameters() { parameters_.reset(); }

  StepResult step(std::optional<double> learning_rate, const ValuesByGroup& groups) {
    StepOptions options;
    options.learning_rate = learning_rate;
    options.groups = groups;
    return parameters().step(options).wait();
  }

 private:
  void settle_parameters() override { parameters_->settle(); }

  // The parameters end before the engine, because they return the tensors' memory.
  std::unique_ptr<StageParameters> parameters_;
};

}  // namespace

void declare_pipelines(py::module_& module) {
  module.def(
      "cut_evenly",
      [](const std::vector<std::int64_t>& weights, int stages, int chunks) {
        return cut_evenly(weights, stages, chunks);
      },
      py::arg("weights"), py::arg("stages"), py::arg("chunks"));
  py::class_<StageParameter>(module, "StageParameter")
      .def(py::init(&stage_parameter), py::arg("parameter"), py::arg("shape"));
  py::class_<StageUnit>(module, "StageUnit")
      .def(py::init<std::string, bool, std::vector<StageParameter>, std::vector<std::string>>(),
           py::arg("name"), py::arg("begins_run"), py::arg("parameters"), py::arg("uses"));
  const auto of = [](auto call) {
    return [call](Pipeline& pipeline) { return (pipeline.parameters().*call)(); };
  };
  using P = StageParameters;
  py::class_<Pipeline, EngineCalls>(module, "Pipeline")
      .def(py::init<std::shared_ptr<Ranks>, std::vector<StageUnit>, std::vector<PyParameter>,
                    const Config&>(),
           py::arg("ranks"), py::arg("units"), py::arg("own"), py::arg("config"), Unlocked())
      // Returns (unit of this stage, micro batch, whether it is forward), or None after the last.
      .def(
          "next_task",
          [](Pipeline& pipeline) -> std::optional<std::tuple<int, int, bool>> {
            const std::optional<P::Work> work = pipeline.parameters().next_task();
            if (!work) return std::nullopt;
            return std::tuple(work->unit, work->micro_batch, work->is_forward);
          },
          Unlocked())
      .def("open_task", of(&P::open_task), Unlocked())
      .def(
          "open_forward",
          [](Pipeline& pipeline, int unit) { pipeline.parameters().open_forward(unit); },
          py::arg("unit"), Unlocked())
      .def("close", of(&P::close), Unlocked())
      .def(
          "evaluates",
          [](Pipeline& pipeline, bool has_batch) {
            return pipeline.parameters().evaluates(has_batch);
          },
          py::arg("has_batch"), Unlocked())
      .def("end_evaluation", of(&P::end_evaluation), Unlocked())
      .def("received", of(&P::received))
      .def("received_gradient", of(&P::received_gradient))
      .def("to_send", [](Pipeline& pipeline,
                         std::int64_t bytes) { return pipeline.parameters().to_send(bytes); })
      .def("gradient_to_send",
           [](Pipeline& pipeline, std::int64_t bytes) {
             return pipeline.parameters().gradient_to_send(bytes);
           })
      .def("loss_scale", of(&P::loss_scale), Unlocked())
      .def(
          "note_loss",
          [](Pipeline& pipeline, double mean) { pipeline.parameters().note_loss(mean); },
          Unlocked())
      .def("step", &Pipeline::step, py::arg("learning_rate"), py::arg("groups"), Unlocked())
      .def("check_unchanged", of(&P::check_unchanged), Unlocked())
      .def("rethrow", of(&P::rethrow), Unlocked())
      .def("abandon", of(&P::abandon), Unlocked())
      .def("forget_values", of(&P::forget_values))
      .def("end_parameters", &Pipeline::end_parameters)
      .def(
          "gather",
          [](Pipeline&, const std::string& name, const py::object&, const py::object&) {
            throw UsageError("parameter " + name +
                             " is of a model in stages, of which no rank gathers parameters: save "
                             "a checkpoint, of which `zero checkpoint export` makes a model");
          },
          py::arg("name"), py::arg("whole"), py::arg("only_rank"))
      // Nothing is open between the calls of a pipeline's engine, and no micro-batch has begun.
      .def("reshard", [](Pipeline&) {})
      .def("begun", [](Pipeline&) { return 0; })
      .def("is_before_backward", [](Pipeline&) { return false; })
      .def(
          "drop_gradients", [](Pipeline& pipeline) { return pipeline.engine().drop_gradients(); },
          Unlocked());
}

}  // namespace zero::pytorch
