// Converts old forms of keys to present forms, before the table is consulted.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config_schemas/document.h"
#include "config_schemas/problems.h"

namespace zero::config_schemas {

// Converted keys: from the present path to the path in the file.
using Conversions = std::map<std::string, std::string, std::less<>>;

// Like DeepSpeed, refuses a file that gives the old and the new key, even if the old key is false.
void convert_old_keys(Node& root, Conversions& conversions, ProblemList& problems);

}  // namespace zero::config_schemas
