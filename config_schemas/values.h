// Between the text of a value and the member of Config that its row fills.
#pragma once

#include <string>

#include "config_schemas/document.h"
#include "config_schemas/keys.h"

namespace zero::config_schemas {

// "an integer from 0 to 3", "one of each, last"
std::string allowed_values(const Key& key);

// What is wrong with the value, without the path; empty when it was stored.
std::string set_value(const Key& key, const std::string& name, const Node& node, Config& config);

// The value as a file would give it, exact; "(not set)" where a file would not give one.
constexpr const char* not_set = "(not set)";
std::string show_value(const Key& key, const std::string& name, Config& config);

}  // namespace zero::config_schemas
