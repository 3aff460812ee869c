// Descriptions of a resolved config, and of keys, for people and for other programs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config_schemas/load.h"
#include "zero/plan/route_text.h"

namespace zero::tool {

using config_schemas::Entry, config_schemas::Key, config_schemas::Loaded;

// Returns the effect of a value of the resolved config, in one line.
std::string effect_of(const Entry& entry);

// Fills in the batch keys of the entries, for a given number of ranks.
void fill_batch(Loaded& loaded, const Batch& batch);

struct Explanation {
  const Loaded& loaded;
  std::optional<Batch> batch;               // if a number of ranks is given
  Text plan;                                // further lines by name: strategy, dtypes, bytes
  std::vector<detail::Exchange> exchanges;  // of a block, if a number of ranks is given
};

// Returns a JSON object: "values" (each with value, source and effect), "notices", "imported",
// "batch", "plan", "exchanges".
std::string to_json(const Explanation& explanation);

// Returns the keys that a path, or the last name of some paths, refers to, in the order of the
// table. Throws ConfigError with the nearest key if there is none.
std::vector<const Key*> keys_named(const std::string& text);

// Returns facts by name: meaning, type, allowed values, default, effect here, and differences from
// DeepSpeed; for a section, the keys inside.
std::vector<std::pair<std::string, std::string>> facts_of(const Key& key);

// Returns a JSON object: each key by path, with its facts.
std::string to_json(const std::vector<const Key*>& keys);

}  // namespace zero::tool
