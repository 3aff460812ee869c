// train_gpt --generate: an engine that does not train generates tokens with the model of --init, at
// any stage and from memory or a file.
#pragma once

#include "examples/gpt/train/options.h"
#include "zero/zero.h"

namespace gpt {

// Prints the tokens on rank 0 as they come. Returns the exit code. Collective; all ranks compute
// the same tokens. Throws ConfigError.
int generate(zero::Runtime& runtime, const Options& options);

}  // namespace gpt
