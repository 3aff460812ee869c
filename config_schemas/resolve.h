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
  bool whole_file = true;  // then it takes the program's batch when it names none
  Purpose purpose = Purpose::run;
};

Resolution resolve(std::vector<ParsedValue> given, const TrainerValues& values,
                   const Circumstances& circumstances, ProblemList& problems);

// Refuses keys that ask for what is not there, and collects notices about the others.
std::vector<std::string> check_supported(const Resolution& resolution,
                                         const Conversions& conversions, ProblemList& problems);

// Whether a value, as shown, of a row that is not honoured is what is done here anyway.
bool asks_for_nothing(const Key& key, std::string_view shown, const Config& config);

// Refuses keys that no row has where DeepSpeed refuses them, where they look like a slip, and where
// they would act at another place; collects notices about the others, which DeepSpeed passes over.
std::vector<std::string> check_strays(const std::vector<Stray>& strays,
                                      const Resolution& resolution, ProblemList& problems);

}  // namespace zero::config_schemas
