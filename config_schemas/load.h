// load_config of zero/config.h, for text that is already in memory.
#pragma once

#include <string>
#include <string_view>

#include "zero/config.h"

namespace zero::config_schemas {

// `file` stands in messages. Throws ConfigError with all problems at once.
Config parse_config(std::string_view text, const std::string& file, const Text& overrides = {});

// The whole of a regular file of at most the size that parse_config takes; never blocks on a FIFO
// or device. Throws ConfigError.
std::string read_config_file(const std::string& file);

}  // namespace zero::config_schemas
