#include "zero/monitor/prometheus_file.h"

#include <cmath>
#include <utility>
#include <vector>

#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/output_file.h"

namespace zero::detail {
namespace {

std::string value_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return shortest_text(value);
}

// A metric and its values, each with its labels as text, such as {kind="forward"}.
struct Metric {
  const char* name;
  const char* type;
  const char* help;
  std::vector<std::pair<std::string, double>> values;
};

std::string text_of(const std::vector<Metric>& metrics) {
  std::string text;
  for (const Metric& metric : metrics) {
    if (metric.values.empty()) continue;
    const std::string name = std::string("zerocore_") + metric.name;
    text += "# HELP " + name + ' ' + metric.help + "\n# TYPE " + name + ' ' + metric.type + '\n';
    for (const auto& [labels, value] : metric.values)
      text += name + labels + ' ' + value_text(value) + '\n';
  }
  return text;
}

std::string label(const char* name, const std::string& value) {
  return std::string("{") + name + "=\"" + value + "\"}";
}

}  // namespace

std::string prometheus_text(const MonitorRecord& r) {
  return text_of({
      {"step", "counter", "Optimizer steps.", {{"", static_cast<double>(r.step)}}},
      {"samples", "counter", "Samples, over all ranks.", {{"", static_cast<double>(r.samples)}}},
      {"loss", "gauge", "Mean loss of the step.", {{"", r.loss}}},
      {"learning_rate", "gauge", "Learning rate of the step.", {{"", r.learning_rate}}},
      {"loss_scale", "gauge", "Loss scale of the step.", {{"", r.loss_scale}}},
  });
}

std::string prometheus_text(const DiagnosticRecord& r) {
  const auto steps = static_cast<double>(r.steps);
  Metric seconds{"step_seconds", "gauge", "Mean time of rank 0 in a step.", {}};
  if (r.shows_time)
    for (const auto& [kind, total] : {std::pair{"forward", r.time.forward},
                                      {"backward", r.time.backward},
                                      {"update", r.time.optimizer},
                                      {"waiting", r.time.waiting},
                                      {"other", r.time.other}})
      seconds.values.emplace_back(label("kind", kind), total / steps);
  Metric memory{"memory_bytes", "gauge", "Current memory of rank 0.", {}};
  Metric resident{"resident_bytes", "gauge", "Resident memory of rank 0's process.", {}};
  if (r.shows_memory) {
    for (const auto& [place, tier] : {std::pair{"memory", &r.rank.memory},
                                      {"host", &r.rank.in_host},
                                      {"file", &r.rank.in_file}})
      for (const MemoryUse& use : *tier)
        if (use.current != 0 || use.peak != 0)
          memory.values.emplace_back(
              std::string("{in=\"") + place + "\",category=\"" + use.category + "\"}",
              static_cast<double>(use.current));
    resident.values.emplace_back("", static_cast<double>(r.rank.resident_bytes));
  }
  Metric sent{"exchange_bytes", "gauge", "Bytes that rank 0 sends in a step.", {}};
  Metric lasted{"exchange_seconds", "gauge", "Time of rank 0's exchanges in a step.", {}};
  if (r.shows_exchanges)
    for (const ExchangeUse& use : r.exchanges) {
      sent.values.emplace_back(label("operation", use.operation),
                               static_cast<double>(use.bytes_sent) / steps);
      lasted.values.emplace_back(label("operation", use.operation), use.seconds / steps);
    }
  return text_of({seconds, memory, resident, sent, lasted});
}

PrometheusFile::PrometheusFile(const std::string& key, const std::string& path) : path_(path) {
  const std::string problem = replace_file(path, "");
  if (!problem.empty()) throw ConfigError(key + ": " + path + " cannot be written: " + problem);
}

// A reader sees the old file or the new one.
void PrometheusFile::replace_or_throw() const {
  const std::string problem = replace_file(path_, step_ + diagnostics_);
  if (!problem.empty()) throw SaveError(path_ + " cannot be replaced: " + problem);
}

void PrometheusFile::write(const MonitorRecord& record) {
  step_ = prometheus_text(record);
  replace_or_throw();
}

void PrometheusFile::write(const DiagnosticRecord& record) {
  diagnostics_ = prometheus_text(record);
  replace_or_throw();
}

}  // namespace zero::detail
