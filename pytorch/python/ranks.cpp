#include "pytorch/python/ranks.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "tools/doctor/examination.h"

namespace py = pybind11;

namespace zero::pytorch {

using Unlocked = py::call_guard<py::gil_scoped_release>;

void declare_ranks(py::module_& module) {
  py::class_<Ranks, std::shared_ptr<Ranks>>(module, "Ranks")
      .def(py::init<std::vector<std::string>, std::string, std::shared_ptr<StoreRendezvous>>(),
           py::arg("arguments"), py::arg("device"), py::arg("rendezvous"), Unlocked())
      .def_property_readonly("rank", [](Ranks& r) { return r.runtime().world_rank(); })
      .def_property_readonly("size", [](Ranks& r) { return r.runtime().world_size(); })
      .def_property_readonly("data_rank", [](Ranks& r) { return r.runtime().rank(); })
      .def_property_readonly("data_size", [](Ranks& r) { return r.runtime().size(); })
      .def_property_readonly("stage", [](Ranks& r) { return r.runtime().pipeline_stage(); })
      .def_property_readonly("stages", [](Ranks& r) { return r.runtime().pipeline_stages(); })
      .def(
          "cut", [](Ranks& r, int stages) { r.runtime().cut_into_stages(stages); },
          py::arg("stages"), Unlocked())
      .def_property_readonly("local_rank", [](Ranks& r) { return r.runtime().local_rank(); })
      .def_property_readonly("local_size", [](Ranks& r) { return r.runtime().local_size(); })
      .def_property_readonly("threads", [](Ranks& r) { return r.runtime().threads(); })
      .def_property_readonly("gpu", [](Ranks& r) { return r.runtime().gpu(); })
      .def("describe", [](Ranks& r) { return r.runtime().describe(); })
      .def("catch_signals",
           [](Ranks& r, const std::vector<int>& numbers) { r.runtime().catch_signals(numbers); })
      .def("end", &Ranks::end, Unlocked())
      .def("sum", &Ranks::sum, Unlocked())
      .def("broadcast", &Ranks::broadcast, py::arg("tensor"), py::arg("root") = 0, Unlocked())
      .def(
          "examine",
          [](Ranks& r, const std::vector<std::string>& directories, const std::string& program) {
            return doctor::examine(r.runtime(), directories, program);
          },
          py::arg("directories"), py::arg("program"), Unlocked())
      // Returns whether this rank prints the cause of the job's end for its node.
      .def(
          "fail",
          [](Ranks& r, const std::string& reason, int exit_code) {
            return r.runtime().give_up(reason, exit_code);
          },
          py::arg("reason"), py::arg("exit_code"), Unlocked())
      .def(
          "abort", [](Ranks& r, int exit_code) { r.runtime().abort(exit_code); },
          py::arg("exit_code"), Unlocked());
}

}  // namespace zero::pytorch
