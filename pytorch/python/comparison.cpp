#include "pytorch/python/comparison.h"

#include <pybind11/stl.h>

#include <string>
#include <utility>
#include <vector>

#include "tools/report/json.h"
#include "tools/report/report.h"
#include "tools/report/runs.h"
#include "tools/report/stage_variants.h"
#include "tools/report/table.h"
#include "zero/zero.h"

namespace zero::pytorch {

namespace {

namespace py = pybind11;
using report::Comparison;

}  // namespace

void declare_comparison(py::module_& module) {
  py::class_<EngineReport>(module, "EngineReport")
      .def_readonly("parameter_count", &EngineReport::parameter_count);
  py::class_<report::MeasuredStep>(module, "MeasuredStep")
      .def(py::init<double, double, double, bool>(), py::arg("loss"), py::arg("gradient_norm"),
           py::arg("tokens_per_second"), py::arg("skipped"));
  py::class_<report::MeasuredRun>(module, "MeasuredRun")
      .def(py::init<std::string, std::vector<report::MeasuredStep>, std::int64_t, EngineReport,
                    EngineReport, std::uint64_t, bool>(),
           py::arg("name"), py::arg("records"), py::arg("warm_up"), py::arg("after_warm_up"),
           py::arg("after_all"), py::arg("digest"), py::arg("encoded"));
  py::class_<report::CommonSettings>(module, "CommonSettings")
      .def(py::init<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool>(),
           py::arg("model"), py::arg("parameters"), py::arg("ranks"), py::arg("steps"),
           py::arg("warm_up"), py::arg("sync_each"))
      .def("facts", [](const report::CommonSettings& s) { return report::facts_of(s); });
  py::class_<Comparison>(module, "Comparison")
      .def(py::init<>())
      .def_readwrite("facts", &Comparison::facts)
      .def("begin", &report::begin, py::arg("settings"), py::arg("names"))
      .def("add", &report::add, py::arg("run"))
      .def("note_failure", &report::note_failure, py::arg("name"), py::arg("reason"))
      .def("bits_equal", &report::bits_equal)
      .def("text", &report::text_of)
      .def("json", &report::json_of)
      .def("write", &report::write_report, py::arg("directory"));
  py::class_<report::StageVariant>(module, "StageVariant")
      .def_readonly("name", &report::StageVariant::name)
      .def_readonly("overrides", &report::StageVariant::overrides)
      .def_readonly("of_gpu", &report::StageVariant::of_gpu)
      .def_readonly("encoded", &report::StageVariant::encoded);
  module.def("parse_stage_list", &report::parse_stage_list, py::arg("list"), py::arg("given_as"));
  module.def("prepare_directory", &report::prepare_directory);
}

}  // namespace zero::pytorch
