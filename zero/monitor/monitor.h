// Records of training for other tools: TensorBoard event files and CSV, as configured by the
// sections "tensorboard" and "csv_monitor", JSON lines (zero_core.json_lines) and Prometheus text
// (zero_core.prometheus). A program passes every finished step to it, as train_gpt does. Tags and
// the sample count as abscissa of the first two are DeepSpeed's.
//
// Used by one thread of the root; on other ranks it does nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "zero/config.h"

namespace zero {

struct DiagnosticRecord;

struct MonitorRecord {
  std::int64_t step = 0;
  std::int64_t samples = 0;  // trained on so far, over all ranks
  double loss = 0, learning_rate = 0;
  double loss_scale = 1;  // recorded if it is not 1
};

// A value of the program's own.
struct MonitorEvent {
  std::string tag;  // with slashes, as "Train/Samples/accuracy"
  double value = 0;
  std::int64_t step = 0;  // the abscissa, in what the program counts
};

class Monitor {
 public:
  // Creates the folders and files. Throws ConfigError if they cannot be written.
  Monitor(const Config& config, bool is_root);
  ~Monitor();

  // Returns whether the config names a file that events are written to; the same on all ranks.
  bool writes_events() const { return writes_events_; }

  // All throw SaveError if a file can no longer be written. Events are written to TensorBoard's
  // file, to the CSV file of their tag and as JSON lines, diagnostics as JSON lines and as
  // Prometheus text.
  void write(const MonitorRecord& record);
  void write_event(const MonitorEvent& event);
  void write_diagnostics(const DiagnosticRecord& record);

 private:
  struct Files;
  std::unique_ptr<Files> files_;
  bool writes_events_;
};

}  // namespace zero
