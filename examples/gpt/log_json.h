// The log of --log-json: one object a line, and a summary as the last; with --compare-stages so for
// each variant, whose name is then in every line. Written by the root alone.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "examples/gpt/training_record.h"
#include "zero/zero.h"

namespace gpt {

class JsonLog {
 public:
  // Empty: writes nothing. Throws ConfigError when the file cannot be written.
  explicit JsonLog(const std::string& path);

  // Of the lines from now on; empty: none.
  void set_variant(const std::string& name) { variant_ = name; }
  void write(const TrainingRecord& record);
  // `checkpoint`: the tag of the last one saved, empty if there is none.
  void write_summary(const zero::EngineReport& report, std::uint64_t digest,
                     const std::string& checkpoint);

 private:
  void line(const std::string& text);

  std::string path_, variant_;
  std::ofstream out_;
};

}  // namespace gpt
