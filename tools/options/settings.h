// The option --set PATH=VALUE of `zero` and train_gpt, repeatable: a value of a config instead of
// the file's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "zero/config.h"

namespace zero {

// Returns the values by path; of two for one path, the last. Throws ConfigError for a text that is
// not PATH=VALUE.
Text parse_settings(const std::vector<std::string>& settings);

// Returns "; did you mean --set optimizer.params.lr=VALUE?" for an option named as a key of the
// config is, such as --lr or --bf16; otherwise "".
std::string settings_hint(std::string_view option);

// Returns true if the settings give this key of the config a value: by path, in another spelling,
// or within an object for an enclosing section.
bool gives(const Text& settings, std::string_view path);

}  // namespace zero
