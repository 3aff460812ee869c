// YAML as a document; without yaml-cpp (no_yaml.cpp) a message that says so.
#pragma once

#include <string_view>

#include "config_schemas/document.h"

namespace zero::config_schemas {

// One YAML document within the limits of parse_document(); no aliases.
Document parse_yaml(std::string_view text);

}  // namespace zero::config_schemas
