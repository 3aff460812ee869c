// report.json: writes and reads all values of a comparison. Bytes and seconds; numbers that JSON
// does not have (NaN, infinities) are null, with their bits in a second field.
#pragma once

#include <string>

#include "tools/report/comparison.h"

namespace zero::report {

std::string json_of(const Comparison& comparison);

// Throws ConfigError, naming `source`, if the text is no valid report.json.
Comparison comparison_of(const std::string& json, const std::string& source);

}  // namespace zero::report
