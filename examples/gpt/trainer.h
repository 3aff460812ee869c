// Trains as the options say, on the ranks of the runtime.
#pragma once

#include "examples/gpt/options.h"
#include "zero/zero.h"

namespace gpt {

void train(zero::Runtime& runtime, const Options& options);

}  // namespace gpt
