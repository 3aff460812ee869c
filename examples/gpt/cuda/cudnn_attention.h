// cuDNN's answers about attention of a shape, for tests on machines without a GPU.
#pragma once

#include <string>

#include "examples/gpt/cuda/attention_kernels.h"

namespace gpt::cuda {

// `properties`: the GPU's, in JSON, as cuDNN 9.8 and newer write them; `capability`: 90 for Hopper.
struct DescribedGpu {
  std::string properties;
  int capability;
};

// Returns the reason if cuDNN has no kernels, forward or backward, for the shape on such a GPU;
// otherwise an empty string.
std::string attention_problem(const AttentionShape& shape, const DescribedGpu& gpu);

}  // namespace gpt::cuda
