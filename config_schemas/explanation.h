// What a resolved config says of itself, for people and for other programs.
#pragma once

#include <optional>
#include <string>

#include "config_schemas/load.h"

namespace zero::config_schemas {

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

}  // namespace zero::config_schemas
