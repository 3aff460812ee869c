#include "zero/monitor/monitor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>

#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/monitor/event_file.h"
#include "zero/monitor/json_lines.h"
#include "zero/monitor/prometheus_file.h"

namespace zero {
namespace {

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
  }

  void add(const std::string& tag, double value, std::int64_t step) {
    const auto [entry, is_new] = files_.try_emplace(tag);
    std::ofstream& file = entry->second;
    if (is_new) {
      std::string name = tag;
      std::ranges::replace(name, '/', '_');
      file.open(std::filesystem::path(folder_) / (name + ".csv"), std::ios::app);
      file << "step," << tag.substr(tag.rfind('/') + 1) << '\n';
    }
    file << step << ',' << shortest_text(value) << '\n';
    if (!file.flush())
      throw SaveError(folder_ + ": " + tag + " cannot be written: " + std::strerror(errno));
  }

 private:
  std::string folder_;
  std::map<std::string, std::ofstream> files_;
};

}  // namespace

struct Monitor::Files {
  std::optional<detail::EventFile> events;
  std::optional<CsvFolder> csv;
  std::optional<detail::JsonLines> lines;
  std::optional<detail::PrometheusFile> prometheus;

  void write(const auto& record) {
    if (lines) lines->write(record);
    if (prometheus) prometheus->write(record);
  }
};

Monitor::Monitor(const Config& config, bool is_root) : files_(std::make_unique<Files>()) {
  if (!is_root) return;
  if (config.tensorboard.enabled) files_->events.emplace(folder_of(config.tensorboard));
  if (config.csv_monitor.enabled) files_->csv.emplace(folder_of(config.csv_monitor));
  const CoreOptions& core = config.zero_core;
  if (!core.json_lines.empty()) files_->lines.emplace("zero_core.json_lines", core.json_lines);
  if (!core.prometheus.empty()) files_->prometheus.emplace("zero_core.prometheus", core.prometheus);
}

Monitor::~Monitor() = default;

void Monitor::write(const MonitorRecord& record) {
  const auto add = [&](const char* tag, double value) {
    if (files_->events) files_->events->add(tag, value, record.samples);
    if (files_->csv) files_->csv->add(tag, value, record.samples);
  };
  add("Train/Samples/train_loss", record.loss);
  add("Train/Samples/lr", record.learning_rate);
  if (record.loss_scale != 1) add("Train/Samples/loss_scale", record.loss_scale);
  if (files_->events) files_->events->flush();
  files_->write(record);
}

void Monitor::write_diagnostics(const DiagnosticRecord& record) {
  files_->write(record);
}

}  // namespace zero
