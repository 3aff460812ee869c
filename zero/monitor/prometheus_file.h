// The newest record of training as Prometheus text (exposition format 0.0.4) in a file that each
// record replaces as a whole, for the textfile collector of Prometheus's node exporter. So no rank
// listens on a port. One thread.
#pragma once

#include <string>

#include "zero/monitor/diagnostics.h"
#include "zero/monitor/monitor.h"

namespace zero::detail {

// Metrics with the prefix zerocore_, each with its help and type.
std::string prometheus_text(const MonitorRecord& record);
std::string prometheus_text(const DiagnosticRecord& record);

class PrometheusFile {
 public:
  // Throws ConfigError, naming `key`, if the path cannot be replaced.
  PrometheusFile(const std::string& key, const std::string& path);

  // The file has the newest record of each kind. Both throw SaveError if it cannot be replaced.
  void write(const MonitorRecord& record);
  void write(const DiagnosticRecord& record);

 private:
  void replace_or_throw() const;

  std::string path_, step_, diagnostics_;
};

}  // namespace zero::detail
