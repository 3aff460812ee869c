// The records of train_gpt --log-json as a comparison of a single run: losses, gradient norms and
// digest; memory, traffic and times are only in a report.
#pragma once

#include <string>

#include "tools/report/comparison.h"

namespace zero::report {

// Returns true if the text has a JSON object per line, and so is no report.json.
bool is_log(const std::string& text);

// Throws ConfigError, naming `source`, if the text is no log of one run from its first step to its
// end.
Comparison comparison_of_log(const std::string& text, const std::string& source);

}  // namespace zero::report
