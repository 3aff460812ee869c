// Check of directories for written models.
#pragma once

#include <string>

namespace zero {

// Throws ConfigError for a directory inside of a checkpoint, because later saves that keep only the
// newest checkpoints would remove the model. Local; for programs to call before the first step.
void check_model_directory(const std::string& directory);

}  // namespace zero
