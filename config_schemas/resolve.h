// Resolution of a document's values to a Config: defaults, "auto", rules over several values, and
// notices on keys without effect.
#pragma once

#include <vector>

#include "config_schemas/legacy.h"
#include "config_schemas/parsed_value.h"

namespace zero::config_schemas {

struct Resolution {
  Config config;
  std::vector<ParsedValue> given;
};

struct Circumstances {
  bool whole_file = true;  // if it names no batch, the program's batch is used
  Purpose purpose = Purpose::run;
};

Resolution resolve(std::vector<ParsedValue> given, const TrainerValues& values,
                   const Circumstances& circumstances, ProblemList& problems);

// Refuses keys that request unsupported behavior, and returns notices about keys that have no
// effect.
std::vector<std::string> check_supported(const Resolution& resolution,
                                         const Conversions& conversions, ProblemList& problems);

// Returns true if the value of a key that is not `honored` requests only the existing behavior.
bool asks_for_nothing(const Key& key, std::string_view shown, const Config& config);

// Refuses unknown keys that DeepSpeed refuses, that look like a typing error, or that would have an
// effect in another section. Returns notices about the remaining keys, since DeepSpeed ignores
// them.
std::vector<std::string> check_unknown_keys(const std::vector<UnknownKey>& keys,
                                            const Resolution& resolution, ProblemList& problems);

}  // namespace zero::config_schemas
