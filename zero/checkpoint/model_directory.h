// Where a model must not be written.
#pragma once

#include <string>

namespace zero {

// Throws ConfigError for a directory inside of a checkpoint, which goes with it when later saves
// keep only the newest ones. Local; for programs to call before the first step.
void check_model_directory(const std::string& directory);

}  // namespace zero
