// Records of training as JSON lines: one object per step or diagnostic, each written at once, for
// programs that pass them on to a service. One thread.
#pragma once

#include <string>

#include "zero/base/output_file.h"
#include "zero/monitor/diagnostics.h"
#include "zero/monitor/monitor.h"

namespace zero::detail {

class JsonLines {
 public:
  // Appends to the file, which a resumed run continues. Throws ConfigError, naming `key`, if it
  // cannot be written.
  JsonLines(const std::string& key, const std::string& path);

  // All throw SaveError if the file can no longer be written.
  void write(const MonitorRecord& record);
  void write(const MonitorEvent& event);
  void write(const DiagnosticRecord& record);

 private:
  void line(const std::string& object);

  std::string key_, path_;
  GrowingFile out_;
};

}  // namespace zero::detail
