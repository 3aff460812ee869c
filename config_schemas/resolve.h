// From the values that a document gives to a Config: defaults, "auto", rules over several values,
// and what becomes of keys without effect.
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

// Refuses keys that ask for what the engine cannot do, and returns notices about those that have no
// effect.
std::vector<std::string> check_supported(const Resolution& resolution,
                                         const Conversions& conversions, ProblemList& problems);

// Whether the value of a key that is not honoured asks only for what the engine does anyway.
bool asks_for_nothing(const Key& key, std::string_view shown, const Config& config);

// Refuses keys that the table does not know: where DeepSpeed refuses them, where they look like a
// typing error, and where they would act in another section. Returns notices about all others,
// which DeepSpeed ignores.
std::vector<std::string> check_unknown_keys(const std::vector<UnknownKey>& keys,
                                            const Resolution& resolution, ProblemList& problems);

}  // namespace zero::config_schemas
