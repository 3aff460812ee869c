// What a resolved config says of itself, and what is known of a key, for people and for other
// programs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config_schemas/load.h"

namespace zero::tool {

using config_schemas::Entry, config_schemas::Key, config_schemas::Loaded;

// What a value of the resolved config does, in one line.
std::string effect_of(const Entry& entry);

// The batch keys of the entries, as they are on some number of ranks.
void fill_batch(Loaded& loaded, const Batch& batch);

struct Explanation {
  const Loaded& loaded;
  std::optional<Batch> batch;  // where a number of ranks is given
  Text plan;                   // further lines by name: strategy, dtypes, bytes
};

// One JSON object: "values" (each with value, source and effect), "notices", "imported", "batch",
// "plan".
std::string to_json(const Explanation& explanation);

// The keys that a path, or the last name of some paths, stands for: in the order of the table.
// Throws ConfigError with the nearest key where there is none.
std::vector<const Key*> keys_named(const std::string& text);

// By name: meaning, type, allowed values, default, what it does here, and how DeepSpeed differs; of
// a section the keys inside.
std::vector<std::pair<std::string, std::string>> facts_of(const Key& key);

// One JSON object: each key by its path with its facts.
std::string to_json(const std::vector<const Key*>& keys);

}  // namespace zero::tool
