#include "pytorch/python/config.h"

#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "pytorch/advice.h"
#include "pytorch/managed_parameter.h"
#include "zero/monitor/diagnostics.h"
#include "zero/monitor/monitor.h"
#include "zero/schedule.h"
#include "zero/zero.h"

namespace zero::pytorch {

namespace {

namespace py = pybind11;
using optim::OptimizerOptions;

// Replaces a member if the program has set a value.
template <class T>
void take(const py::dict& given, const char* name, T& member) {
  if (given.contains(name)) member = given[name].cast<T>();
}

// Replaces the file's optimizer by the program's; option names are torch's.
void use_optimizer(Config& config, const std::string& type, const py::dict& given) {
  OptimizerOptions options = optim::default_options(type);
  options.type = type;
  std::pair betas(options.beta1, options.beta2);
  take(given, "lr", options.learning_rate);
  take(given, "weight_decay", options.weight_decay);
  take(given, "betas", betas);
  take(given, "eps", options.epsilon);
  take(given, "adam_w_mode", options.adam_w_mode);
  take(given, "bias_correction", options.bias_correction);
  take(given, "momentum", options.momentum);
  take(given, "dampening", options.dampening);
  take(given, "nesterov", options.nesterov);
  take(given, "lr_decay", options.lr_decay);
  take(given, "initial_accumulator_value", options.initial_accumulator_value);
  take(given, "max_coeff", options.max_coeff);
  take(given, "min_coeff", options.min_coeff);
  take(given, "eps_inside_sqrt", options.eps_inside_sqrt);
  take(given, "ns_method", options.ns_method);
  take(given, "beta2_decay", options.beta2_decay);
  take(given, "eps1", options.eps1);
  take(given, "eps2", options.eps2);
  take(given, "d", options.d);
  take(given, "transformers_form", options.transformers_form);
  take(given, "scale_parameter", options.scale_parameter);
  take(given, "relative_step", options.relative_step);
  take(given, "warmup_init", options.warmup_init);
  std::tie(options.beta1, options.beta2) = betas;
  config.optimizer = options;
}

void declare_values(py::module_& module) {
  py::class_<GroupValues>(module, "GroupValues")
      .def(py::init([](std::optional<double> lr, std::optional<double> weight_decay,
                       std::optional<double> eps, std::optional<double> momentum,
                       std::optional<std::pair<double, double>> betas) {
             return GroupValues{lr, weight_decay, eps, momentum, betas};
           }),
           py::arg("lr") = py::none(), py::arg("weight_decay") = py::none(),
           py::arg("eps") = py::none(), py::arg("momentum") = py::none(),
           py::arg("betas") = py::none())
      .def("items", [](const GroupValues& values) {
        py::dict items;
        const auto add = [&](const char* name, const auto& value) {
          if (value) items[name] = *value;
        };
        add("lr", values.learning_rate);
        add("weight_decay", values.weight_decay);
        add("eps", values.eps);
        add("momentum", values.momentum);
        add("betas", values.betas);
        return items;
      });
}

void declare_monitor(py::module_& module) {
  py::class_<Monitor>(module, "Monitor")
      .def(py::init<const Config&, bool>(), py::arg("config"), py::arg("is_root"))
      .def(
          "write",
          [](Monitor& monitor, std::int64_t samples, const StepResult& step) {
            monitor.write({step.step, samples, step.loss, step.learning_rate,
                           static_cast<double>(step.loss_scale)});
          },
          py::arg("samples"), py::arg("step"))
      .def_property_readonly("writes_events", &Monitor::writes_events)
      .def(
          "write_event",
          [](Monitor& monitor, const std::string& tag, double value, std::int64_t step) {
            monitor.write_event({tag, value, step});
          },
          py::arg("tag"), py::arg("value"), py::arg("step"));
  py::class_<Diagnostics>(module, "Diagnostics")
      .def(py::init<const Config&>(), py::arg("config"))
      .def("profiles_after", &Diagnostics::profiles_after, py::arg("step"));
}

}  // namespace

Config silent(Config config) {
  config.notices.clear();
  return config;
}

void declare_config(py::module_& module) {
  language = Language::python;
  py::class_<Config>(module, "Config")
      .def_static(
          "of_file",
          [](const std::string& path, const Text& overrides) {
            return load_config(path, overrides);
          },
          py::arg("path"), py::arg("overrides") = Text())
      .def_static("of_text", &parse_config, py::arg("text"), py::arg("name"),
                  py::arg("overrides") = Text())
      .def_static("file_as_json", py::overload_cast<const std::string&>(&config_as_json))
      .def_static("text_as_json",
                  py::overload_cast<const std::string&, const std::string&>(&config_as_json))
      .def("use_optimizer", &use_optimizer, py::arg("type"), py::arg("options"))
      .def(
          "add_group",
          [](Config& config, const std::string& name, double lr_scale, const GroupValues& own) {
            config.zero_core.param_groups[name] = {lr_scale, own.weight_decay, own.learning_rate,
                                                   own.eps,  own.momentum,     own.betas};
          },
          py::arg("name"), py::arg("lr_scale"), py::arg("values"))
      .def("drop_scheduler", [](Config& config) { config.scheduler = {}; })
      .def("note",
           [](Config& config, const std::string& notice) { config.notices.push_back(notice); })
      .def_property_readonly("stage", [](const Config& c) { return c.zero_optimization.stage; })
      .def_property_readonly("reshards",
                             [](const Config& c) { return c.zero_core.reshard_after_forward; })
      .def_property_readonly(
          "sync_is_automatic",
          [](const Config& c) { return c.zero_core.gradient_sync == GradientSync::automatic; })
      .def_property_readonly(
          "syncs_each",
          [](const Config& c) { return c.zero_core.gradient_sync == GradientSync::each; })
      .def_property_readonly("optimizer_type", [](const Config& c) { return c.optimizer.type; })
      .def_property_readonly(
          "learning_rate",
          [](const Config& c) { return optim::options_of_rule(c.optimizer, false).learning_rate; })
      .def_property_readonly("optimizer_values",
                             [](const Config& c) {
                               const OptimizerOptions& o = c.optimizer;
                               return GroupValues{optim::options_of_rule(o, false).learning_rate,
                                                  o.weight_decay, o.epsilon, o.momentum,
                                                  std::pair(o.beta1, o.beta2)};
                             })
      .def_property_readonly("scheduler_type", [](const Config& c) { return c.scheduler.type; })
      // The rate, and the betas if scheduled, of an applied step, counted from 1.
      .def(
          "scheduled",
          [](const Config& c, std::int64_t step) {
            const ScheduledStep scheduled = scheduled_step(c, step);
            return std::pair(scheduled.learning_rate, scheduled.betas);
          },
          py::arg("step"))
      // Whether fp16 uses a loss scale other than 1.
      .def_property_readonly(
          "scales_loss",
          [](const Config& c) { return c.fp16_enabled && (c.loss_scale.loss_scale != 1); })
      .def_readonly("optimizer_given", &Config::optimizer_given)
      .def_readonly("fp16", &Config::fp16_enabled)
      .def_readonly("bf16", &Config::bf16_enabled)
      .def_property_readonly("buffer_dtype",
                             [](const Config& c) -> std::optional<at::ScalarType> {
                               if (!c.buffer_dtype) return std::nullopt;
                               return scalar_type(*c.buffer_dtype);
                             })
      .def_property_readonly("rounds_initial",
                             [](const Config& c) { return c.zero_core.round_initial_weights; })
      .def_readonly("drops_last", &Config::dataloader_drop_last)
      .def_readonly("manages_accumulation", &Config::managed_gradient_accumulation)
      .def_property_readonly("autocasts", [](const Config& c) { return c.torch_autocast.enabled; })
      .def_property_readonly("autocast_dtype",
                             [](const Config& c) -> std::optional<at::ScalarType> {
                               if (!c.torch_autocast.dtype) return std::nullopt;
                               return scalar_type(*c.torch_autocast.dtype);
                             })
      .def_property_readonly("loss_scale_options",
                             [](const Config& c) {
                               const optim::LossScaleOptions& o = c.loss_scale;
                               return py::dict(
                                   py::arg("loss_scale") = o.loss_scale,
                                   py::arg("initial_scale_power") = o.initial_scale_power,
                                   py::arg("scale_window") = o.loss_scale_window,
                                   py::arg("min_scale") = o.min_loss_scale);
                             })
      .def_readonly("gradient_clipping", &Config::gradient_clipping)
      .def_readonly("dump_state", &Config::dump_state)
      .def_property_readonly("trace", [](const Config& c) { return c.zero_core.trace; })
      .def_readonly("steps_per_print", &Config::steps_per_print)
      .def_readonly("seed", &Config::seed)
      .def_property_readonly("pipeline_stages", [](const Config& c) { return c.pipeline.stages; })
      .def_property_readonly("pipeline_partition",
                             [](const Config& c) { return c.pipeline.partition; })
      .def_property_readonly("pipeline_chunks", [](const Config& c) { return c.pipeline.chunks; })
      .def_property_readonly("preempt_grace_s",
                             [](const Config& c) { return c.zero_core.preempt_grace_s; })
      .def_property_readonly("rank_independent",
                             [](const Config& c) { return c.zero_core.rank_independent; })
      .def_property_readonly("recompute_every",
                             [](const Config& c) { return c.zero_core.recompute_every; })
      .def_readonly("notices", &Config::notices);
  declare_values(module);
  declare_monitor(module);
}

}  // namespace zero::pytorch
