// The log of --log-json: one object per line, and a summary as the last line. With --compare-stages
// each variant writes all of these, with its name in every line. Only the root writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/gpt/train/training_record.h"
#include "zero/base/output_file.h"
#include "zero/monitor/diagnostics.h"
#include "zero/zero.h"

namespace gpt {

class JsonLog {
 public:
  // An empty path writes nothing. Replaces an existing file, but in a job that `zero run` has
  // restarted continues it. Throws ConfigError if the file cannot be written.
  explicit JsonLog(const std::string& path);

  // Removes the lines of later steps, which this job repeats. Without effect in a first start.
  void continue_after(std::int64_t step);

  // Names the variant of all following lines; empty: none.
  void set_variant(const std::string& name) { variant_ = name; }
  void write(const TrainingRecord& record);
  void write(const zero::DiagnosticRecord& record);
  // The config in effect and the names of the units, for dump_state.
  void write_state(const zero::Engine& engine, const std::vector<std::string>& units);
  // `checkpoint`: the tag of the last saved checkpoint, empty if there is none.
  void write_summary(const zero::EngineReport& report, std::uint64_t digest,
                     const std::string& checkpoint);

 private:
  void line(const std::string& text);

  bool restarted_ = false;
  std::string path_, variant_;
  zero::GrowingFile out_;
};

}  // namespace gpt
