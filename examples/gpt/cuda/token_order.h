// Sorts the rows of a micro-batch by token, keeping the order of rows with equal tokens, so that
// the embedding's gradient can be summed without atomics.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "examples/gpt/cuda/device_buffer.h"

namespace gpt::cuda {

class TokenOrder {
 public:
  // Tokens must be below `vocabulary`.
  TokenOrder(std::int64_t rows, std::int64_t vocabulary, cudaStream_t stream);

  // Returns a pointer that is valid until the next call.
  const std::int32_t* sort(const std::int32_t* tokens);
  std::int64_t bytes() const;

 private:
  int rows_, token_bits_;
  cudaStream_t stream_;
  DeviceBuffer<std::int32_t> numbers_, sorted_tokens_, sorted_rows_;
  DeviceBuffer<unsigned char> scratch_;
};

}  // namespace gpt::cuda
