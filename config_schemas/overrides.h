// Command-line overrides. Put into the document before the checks, so that the same table validates
// them.
#pragma once

#include <string>
#include <string_view>

#include "config_schemas/document.h"
#include "config_schemas/problems.h"
#include "zero/config.h"

namespace zero::config_schemas {

// A text that is no JSON value is taken as a string. An override replaces the file's value in all
// spellings of the key.
void apply_overrides(Node& root, const Text& overrides, ProblemList& problems);

// Returns true if the overrides give this key a value: by path, in another spelling, or within an
// object for an enclosing section.
bool gives(const Text& overrides, std::string_view path);

}  // namespace zero::config_schemas
