// The rows of a micro batch in the order of their tokens, rows of one token in their own order:
// what sums the embedding's gradient without atomics.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "examples/gpt/cuda/device_buffer.h"

namespace gpt::cuda {

class TokenOrder {
 public:
  // Tokens are below `vocabulary`.
  TokenOrder(std::int64_t rows, std::int64_t vocabulary, cudaStream_t stream);

  // Valid until the next call.
  const std::int32_t* sort(const std::int32_t* tokens);
  std::int64_t bytes() const;

 private:
  int rows_, token_bits_;
  cudaStream_t stream_;
  DeviceBuffer<std::int32_t> numbers_, sorted_tokens_, sorted_rows_;
  DeviceBuffer<unsigned char> scratch_;
};

}  // namespace gpt::cuda
