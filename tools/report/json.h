// report.json: all values of a comparison, and back. Bytes and seconds; numbers that JSON does not
// have (NaN, infinities) are null, their bits stand beside them.
#pragma once

#include <string>

#include "tools/report/comparison.h"

namespace zero::report {

std::string json_of(const Comparison& comparison);

// Throws ConfigError, naming `source`, for text that is no report.json of ours.
Comparison comparison_of(const std::string& json, const std::string& source);

}  // namespace zero::report
