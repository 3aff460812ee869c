// What cuDNN says of attention of a shape, for tests on machines without a GPU.
#pragma once

#include <string>

#include "examples/gpt/cuda/attention_kernels.h"

namespace gpt::cuda {

// `properties`: of a GPU, in JSON, as cuDNN 9.8 and newer write them; `capability`: 90 for Hopper.
struct DescribedGpu {
  std::string properties;
  int capability;
};

// Why cuDNN has no kernels, forward or backward, for the shape on such a GPU; empty where it has.
std::string attention_problem(const AttentionShape& shape, const DescribedGpu& gpu);

}  // namespace gpt::cuda
