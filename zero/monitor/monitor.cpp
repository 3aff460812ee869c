#include "zero/monitor/monitor.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

#include "zero/base/acting.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/output_file.h"
#include "zero/monitor/event_file.h"
#include "zero/monitor/json_lines.h"
#include "zero/monitor/prometheus_file.h"

namespace zero {
namespace {

constexpr const char* loss_tag = "Train/Samples/train_loss";
constexpr const char* rate_tag = "Train/Samples/lr";

std::string folder_of(const MonitorOptions& options) {
  return (std::filesystem::path(options.output_path) / options.job_name).string();
}

// One file per tag, named as in DeepSpeed: Train_Samples_lr.csv.
class CsvFolder {
 public:
  explicit CsvFolder(std::string folder) : folder_(std::move(folder)) {
    std::error_code problem;
    std::filesystem::create_directories(folder_, problem);
    if (problem)
      throw ConfigError("csv_monitor.output_path: " + folder_ +
                        " cannot be made: " + problem.message());
    for (const char* tag : {loss_tag, rate_tag}) open(tag);
  }

  void add(const std::string& tag, double value, std::int64_t step) {
    const std::string problem =
        open(tag).write(std::to_string(step) + ',' + shortest_text(value) + '\n');
    if (!problem.empty()) throw SaveError(folder_ + ": " + tag + " cannot be written: " + problem);
  }

 private:
  GrowingFile& open(const std::string& tag) {
    const auto [entry, is_new] = files_.try_emplace(tag);
    if (!is_new) return entry->second;
    std::string name = tag;
    std::ranges::replace(name, '/', '_');
    std::string problem = entry->second.open(folder_ + "/" + name + ".csv");
    if (problem.empty())
      problem = entry->second.write("step," + tag.substr(tag.rfind('/') + 1) + '\n');
    if (!problem.empty())
      throw ConfigError("csv_monitor.output_path: " + folder_ + "/" + name +
                        ".csv cannot be written: " + problem);
    return entry->second;
  }

  std::string folder_;
  std::map<std::string, GrowingFile> files_;
};

}  // namespace

struct Monitor::Files {
  std::optional<detail::EventFile> events;
  std::optional<CsvFolder> csv;
  std::optional<detail::JsonLines> lines;
  std::optional<detail::PrometheusFile> prometheus;

  void add(const std::string& tag, double value, std::int64_t step) {
    if (events) events->add(tag, value, step);
    if (csv) csv->add(tag, value, step);
  }
  void write(const auto& record) {
    if (lines) lines->write(record);
    if (prometheus) prometheus->write(record);
  }
};

Monitor::Monitor(const Config& config, bool is_root)
    : files_(std::make_unique<Files>()),
      writes_events_(config.tensorboard.enabled || config.csv_monitor.enabled ||
                     !config.zero_core.json_lines.empty()) {
  is_used(Acting::monitor) = true;
  if (!is_root) return;
  if (config.tensorboard.enabled) files_->events.emplace(folder_of(config.tensorboard));
  if (config.csv_monitor.enabled) files_->csv.emplace(folder_of(config.csv_monitor));
  const CoreOptions& core = config.zero_core;
  if (!core.json_lines.empty()) files_->lines.emplace("zero_core.json_lines", core.json_lines);
  if (!core.prometheus.empty()) files_->prometheus.emplace("zero_core.prometheus", core.prometheus);
}

Monitor::~Monitor() = default;

void Monitor::write(const MonitorRecord& record) {
  files_->add(loss_tag, record.loss, record.samples);
  files_->add(rate_tag, record.learning_rate, record.samples);
  if (record.loss_scale != 1)
    files_->add("Train/Samples/loss_scale", record.loss_scale, record.samples);
  if (files_->events) files_->events->flush();
  files_->write(record);
}

void Monitor::write_event(const MonitorEvent& event) {
  files_->add(event.tag, event.value, event.step);
  if (files_->events) files_->events->flush();
  if (files_->lines) files_->lines->write(event);
}

void Monitor::write_diagnostics(const DiagnosticRecord& record) {
  files_->write(record);
}

}  // namespace zero
