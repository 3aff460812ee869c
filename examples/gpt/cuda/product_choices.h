// Times the algorithms of matrix products once: rank 0 measures, and stores the choices in a file,
// which all ranks take.
#pragma once

#include <string>

#include "examples/gpt/cuda/device_matmul.h"
#include "zero/zero.h"

namespace gpt::cuda {

// Collective; call before the first product. Products in the file are not timed again, so that
// another run has equal bits. Throws ConfigError if the file is for another library or GPU.
void choose_products(zero::Runtime& runtime, DeviceMatmul& matmul, const std::string& file);

}  // namespace gpt::cuda
