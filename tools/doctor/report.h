// The report on all hosts, as JSON, with the names in docs/doctor.md, and as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/links.h"
#include "tools/doctor/readings.h"

namespace zero::doctor {

// The part of one host: its readings, and the conclusions from them.
std::string host_report(const Readings& host);
// hosts: their parts, as host_report() returns them; links: none for a job of one rank. One line.
std::string report_of(const std::vector<std::string>& hosts, const std::optional<Links>& links);

// The report as people read it, and as other programs do, over several lines. Throw ConfigError if
// it is no report.
std::string text_of(const std::string& report);
std::string indented(const std::string& report);

}  // namespace zero::doctor
