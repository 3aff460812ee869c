#include "pytorch/python/engine_calls.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <vector>

#include "zero/monitor/diagnostics.h"
#include "zero/monitor/monitor.h"

namespace py = pybind11;

namespace zero::pytorch {

using Unlocked = py::call_guard<py::gil_scoped_release>;

namespace {

void declare_results(py::module_& module) {
  py::class_<StepResult>(module, "StepResult")
      .def_readonly("step", &StepResult::step)
      .def_readonly("loss", &StepResult::loss)
      .def_readonly("grad_norm", &StepResult::grad_norm)
      .def_readonly("learning_rate", &StepResult::learning_rate)
      .def_readonly("loss_scale", &StepResult::loss_scale)
      .def_readonly("skipped", &StepResult::skipped)
      .def_readonly("stop_requested", &StepResult::stop_requested);
  py::class_<Resumed>(module, "Resumed")
      .def_readonly("step", &Resumed::step)
      .def_readonly("tag", &Resumed::tag)
      .def_readonly("client_state", &Resumed::client_state)
      .def_property_readonly(
          "program_state", [](const Resumed& resumed) { return py::bytes(resumed.program_state); })
      .def_property_readonly("rank_states", [](const Resumed& resumed) {
        py::list states;
        for (const std::string& state : resumed.rank_states) states.append(py::bytes(state));
        return states;
      });
  py::class_<SaveOptions>(module, "SaveOptions")
      .def(py::init())
      .def_readwrite("tag", &SaveOptions::tag)
      .def_readwrite("program_state", &SaveOptions::program_state)
      .def_readwrite("rank_state", &SaveOptions::rank_state)
      .def_readwrite("scheduler", &SaveOptions::scheduler)
      .def_readwrite("trainable_only", &SaveOptions::trainable_only)
      .def_readwrite("replace", &SaveOptions::replace);
}

}  // namespace

void declare_engine_calls(py::module_& module) {
  declare_results(module);
  py::class_<EngineCalls>(module, "EngineCalls")
      .def("micro_batches",
           [](EngineCalls& m, long step) { return m.engine().micro_batches(step); })
      .def(
          "next_values",
          [](EngineCalls& m, const std::string& group, std::int64_t ahead) {
            return m.engine().next_values(group, ahead);
          },
          py::arg("group"), py::arg("ahead"), Unlocked())
      .def("failed", [](EngineCalls& m) { return m.engine().failed(); })
      .def("reduces_each_micro_step",
           [](EngineCalls& m) { return m.engine().reduces_each_micro_step(); })
      .def("saves_in_background", &EngineCalls::saves_in_background)
      .def("save", &EngineCalls::save, py::arg("directory"), py::arg("options"), py::arg("waits"),
           Unlocked())
      .def("copy_to_peers", &EngineCalls::copy_to_peers, py::arg("directory"), py::arg("options"),
           Unlocked())
      .def("peer_copy_due", &EngineCalls::peer_copy_due)
      .def("finish_save", &EngineCalls::finish_save, Unlocked())
      .def("resume", &EngineCalls::resume, py::arg("directory"), py::arg("tag"), Unlocked())
      .def(
          "take_memory", [](EngineCalls& m) { m.engine().take_memory(); }, Unlocked())
      .def(
          "digest", [](EngineCalls& m) { return m.engine().digest(); }, Unlocked())
      .def(
          "report", [](EngineCalls& m) { return m.engine().report(); }, Unlocked())
      .def("start_line", [](EngineCalls& m) { return m.engine().start_line(); })
      .def("memory_table", [](EngineCalls& m) { return m.engine().memory_table(); })
      // Returns the lines that are due after a step.
      .def(
          "diagnose",
          [](EngineCalls& m, Diagnostics& diagnostics, Monitor& monitor, std::int64_t step,
             std::int64_t parameters, double samples, double flops) {
            const StepWork work{parameters, samples, flops};
            std::string text;
            for (const DiagnosticRecord& record : diagnostics.after_step(
                     step, [&] { return m.engine().rank_report(); }, work)) {
              text += text_of(record);
              monitor.write_diagnostics(record);
            }
            return text;
          },
          py::arg("diagnostics"), py::arg("monitor"), py::arg("step"), py::arg("parameters"),
          py::arg("samples"), py::arg("flops"), Unlocked())
      .def(
          "write_trace",
          [](EngineCalls& m, const std::string& file) { return m.engine().write_trace(file); },
          py::arg("file"), Unlocked())
      .def("batch",
           [](EngineCalls& m) {
             const Batch batch = m.engine().batch();
             return std::vector<std::int64_t>{batch.micro, batch.micro_batches};
           })
      .def("describe_config", [](EngineCalls& m) { return describe(m.engine().config()); })
      .def("step_count", [](EngineCalls& m) { return m.engine().step_count(); })
      .def(
          "applied_steps", [](EngineCalls& m) { return m.engine().applied_steps(); }, Unlocked())
      .def("unit_names",
           [](EngineCalls& m) {
             std::vector<std::string> names;
             for (const Unit& unit : m.engine().units()) names.emplace_back(unit.name());
             return names;
           })
      .def("forward_order", [](EngineCalls& m) {
        std::vector<std::string> names;
        for (const Unit* unit : m.engine().forward_order()) names.emplace_back(unit->name());
        return names;
      });
}

}  // namespace zero::pytorch
