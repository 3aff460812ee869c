// Writes the report on all hosts, as JSON with the names in docs/doctor.md, and as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/links.h"
#include "tools/doctor/readings.h"

namespace zero::doctor {

// Returns the JSON of a host: readings and conclusions.
std::string host_report(const Readings& host);
// Returns the report as one line of JSON. hosts: results of host_report(), one per host. links:
// none for a job of one rank.
std::string report_of(const std::vector<std::string>& hosts, const std::optional<Links>& links);

// Return the report as text for people, and as JSON over several lines. Throw ConfigError if the
// argument is not a report.
std::string text_of(const std::string& report);
std::string indented(const std::string& report);

}  // namespace zero::doctor
