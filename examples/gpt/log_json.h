// The log of --log-json: one object a line, and a summary as the last. Written by the root alone.
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

  void write(const TrainingRecord& record);
  // `checkpoint`: the tag of the last one saved, empty if there is none.
  void write_summary(const zero::EngineReport& report, std::uint64_t digest,
                     const std::string& checkpoint);

 private:
  void line(const std::string& text);

  std::string path_;
  std::ofstream out_;
};

}  // namespace gpt
