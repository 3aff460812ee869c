// Old forms of keys, turned into today's before the table looks at them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config_schemas/document.h"
#include "config_schemas/problems.h"

namespace zero::config_schemas {

// What was converted: today's path to the path in the file.
using Conversions = std::map<std::string, std::string, std::less<>>;

// A replacement that is given too is a problem, as in DeepSpeed, even where the old key is false.
void convert_old_keys(Node& root, Conversions& conversions, ProblemList& problems);

}  // namespace zero::config_schemas
