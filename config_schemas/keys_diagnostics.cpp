// Rows of what DeepSpeed prints and records.
#include <array>

#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

constexpr std::string_view own_output =
    "diagnostic output of DeepSpeed; the program prints its own";

std::vector<Key> printing_rows() {
  return {
      no_effect("wall_clock_breakdown", Type::boolean, "false", own_output, "timers"),
      no_effect("memory_breakdown", Type::boolean, "false", own_output, "memory reports"),
      no_effect("dump_state", Type::boolean, "false", own_output, "the engine's state at start"),
      or_null(one_of(no_effect("log_level", Type::choice, "null", own_output, "amount of output"),
                     {"debug", "info", "warning", "error", "critical"})),
      section("timers", "throughput timers"),
      section("timers.throughput", "throughput timers"),
      harmless(no_effect("timers.throughput.enabled", Type::boolean, "true", own_output,
                         "measure throughput"),
               {"false"}),
      harmless(no_effect("timers.throughput.synchronized", Type::boolean, "true", own_output,
                         "wait for the device"),
               {"false"}),
      section("comms_logger", "a log of communication; in DeepSpeed its presence switches it on"),
      no_effect("comms_logger.enabled", Type::boolean, "false", own_output, says_nothing),
      no_effect("comms_logger.prof_all", Type::boolean, "true", own_output, "all operations"),
      no_effect("comms_logger.prof_ops", Type::list, "[]", own_output, "these operations"),
      no_effect("comms_logger.verbose", Type::boolean, "false", own_output, "each call"),
      no_effect("comms_logger.debug", Type::boolean, "false", own_output, "callers too"),
  };
}

std::vector<Key> profiler_rows() {
  const std::string_view on = "flops_profiler.enabled";
  const auto number = [](std::string_view path, std::string_view initial,
                         std::string_view meaning) {
    return in_range(no_effect(path, Type::integer, initial, own_output, meaning), any_count);
  };
  std::vector<Key> rows = {
      no_effect(on, Type::boolean, "false", own_output, "count operations"),
      number("flops_profiler.profile_step", "1", "step to count"),
      number("flops_profiler.end_profile_step", "", "not read"),
      number("flops_profiler.module_depth", "-1", "modules printed"),
      number("flops_profiler.top_modules", "1", "modules printed"),
      no_effect("flops_profiler.detailed", Type::boolean, "true", own_output, "more output"),
      or_null(
          no_effect("flops_profiler.output_file", Type::text, "null", own_output, "file to write")),
      in_range(no_effect("flops_profiler.recompute_fwd_factor", Type::number, "0", own_output,
                         "forward passes that are computed again"),
               signed_rates),
  };
  for (Key& row : rows)
    if (row.path != on) row.switched_by = on;
  rows.insert(rows.begin(), section("flops_profiler", "a profile of one step"));
  return rows;
}

// The sections of two members of Config.
template <MonitorOptions Config::*section>
std::vector<Key> file_monitor_rows(const std::array<std::string_view, 4>& paths,
                                   std::string_view meaning) {
  return {
      {.path = paths[0], .auto_is_absent = true, .meaning = meaning},
      {.path = paths[1],
       .type = Type::boolean,
       .target = at<section, &MonitorOptions::enabled>,
       .meaning = "write loss, learning rate and loss scale of every step over the samples so far; "
                  "of programs that hand their steps to zero::Monitor, as train_gpt does"},
      {.path = paths[2],
       .type = Type::text,
       .target = at<section, &MonitorOptions::output_path>,
       .meaning = "folder"},
      {.path = paths[3],
       .type = Type::text,
       .target = at<section, &MonitorOptions::job_name>,
       .meaning = "folder inside of it"},
  };
}

struct ServiceMonitor {
  std::string_view section, enabled;
  std::vector<std::string_view> texts;  // further keys: strings or null
};

std::vector<Key> service_monitor_rows() {
  const std::vector<ServiceMonitor> monitors = {
      {"wandb", "wandb.enabled", {"wandb.group", "wandb.team", "wandb.project"}},
      {"comet",
       "comet.enabled",
       {"comet.project", "comet.workspace", "comet.api_key", "comet.experiment_name",
        "comet.experiment_key", "comet.online", "comet.mode"}},
  };
  constexpr std::string_view none =
      "nothing is sent to a service; tensorboard and csv_monitor write records to files";
  std::vector<Key> rows;
  for (const ServiceMonitor& monitor : monitors) {
    rows.push_back({.path = monitor.section,
                    .auto_is_absent = true,
                    .meaning = "records of training outside the program"});
    rows.push_back(no_effect(monitor.enabled, Type::boolean, "false", none, "write records"));
    for (const auto path : monitor.texts)
      rows.push_back(
          under(monitor.enabled, or_null(no_effect(path, Type::any, "", none, "of the monitor"))));
  }
  rows.push_back(
      under("comet.enabled", in_range(no_effect("comet.samples_log_interval", Type::integer, "100",
                                                none, "of the monitor"),
                                      any_count)));
  return rows;
}

std::vector<Key> monitor_rows() {
  std::vector<Key> rows = file_monitor_rows<&Config::tensorboard>(
      {"tensorboard", "tensorboard.enabled", "tensorboard.output_path", "tensorboard.job_name"},
      "TensorBoard event files");
  for (const Key& key :
       file_monitor_rows<&Config::csv_monitor>({"csv_monitor", "csv_monitor.enabled",
                                                "csv_monitor.output_path", "csv_monitor.job_name"},
                                               "a CSV file per value"))
    rows.push_back(key);
  for (const Key& key : service_monitor_rows()) rows.push_back(key);
  return rows;
}

}  // namespace

std::vector<Key> diagnostic_rows() {
  std::vector<Key> result;
  for (auto rows : {printing_rows, profiler_rows, monitor_rows})
    for (const Key& key : rows()) result.push_back(key);
  return result;
}

}  // namespace zero::config_schemas
