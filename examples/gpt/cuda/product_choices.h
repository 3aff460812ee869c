// The algorithms of matrix products, timed once: rank 0 does it, keeps them in a file, and all
// ranks take its choices.
#pragma once

#include <string>

#include "examples/gpt/cuda/device_matmul.h"
#include "zero/zero.h"

namespace gpt::cuda {

// Collective, before the first product. Products in the file are not timed again, so that another
// run has equal bits; a file for another library or GPU is refused with ConfigError.
void choose_products(zero::Runtime& runtime, DeviceMatmul& matmul, const std::string& file);

}  // namespace gpt::cuda
