// What is known of a key, from its row of the table, for people and for other programs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config_schemas/keys.h"

namespace zero::config_schemas {

// The keys that a path, or the last name of some paths, stands for: in the order of the table.
// Throws ConfigError with the nearest key where there is none.
std::vector<const Key*> keys_named(const std::string& text);

// By name: meaning, type, allowed values, default, what it does here, and how DeepSpeed differs; of
// a section the keys inside.
std::vector<std::pair<std::string, std::string>> facts_of(const Key& key);

// One JSON object: each key by its path with its facts.
std::string to_json(const std::vector<const Key*>& keys);

}  // namespace zero::config_schemas
