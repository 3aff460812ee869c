// From the values that a document gives to a Config: defaults, "auto", rules over several values,
// and what becomes of keys without effect.
#pragma once

#include <vector>

#include "config_schemas/given.h"
#include "config_schemas/legacy.h"

namespace zero::config_schemas {

struct Resolution {
  Config config;
  std::vector<Given> given;
};

// `complete`: the document is a whole file, which takes the program's batch when it names none.
Resolution resolve(std::vector<Given> given, const TrainerValues& values, bool complete,
                   ProblemList& problems);

// Refuses keys that ask for what is not there, and collects notices about the others.
std::vector<std::string> judge(const Resolution& resolution, const Conversions& conversions,
                               ProblemList& problems);

}  // namespace zero::config_schemas
