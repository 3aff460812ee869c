// Command-line overrides, put into the document before it is checked, so that they pass the same
// table.
#pragma once

#include "config_schemas/document.h"
#include "config_schemas/problems.h"
#include "zero/config.h"

namespace zero::config_schemas {

// Values that can be read are taken as such, others as strings. They replace what the file says,
// in whichever spelling.
void apply_overrides(Node& root, const Text& overrides, ProblemList& problems);

}  // namespace zero::config_schemas
