// Times the algorithms of matrix products once: rank 0 measures them and stores them in a file, and
// all ranks take its choices.
#pragma once

#include <string>

#include "examples/gpt/cuda/device_matmul.h"
#include "zero/zero.h"

namespace gpt::cuda {

// Collective; call it before the first product. Products in the file are not timed again, so that
// another run has equal bits. Throws ConfigError if the file is for another library or GPU.
void choose_products(zero::Runtime& runtime, DeviceMatmul& matmul, const std::string& file);

}  // namespace gpt::cuda
