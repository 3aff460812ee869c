// The cross-entropy of a chunk of rows, forward and backward at once: probabilities are never
// stored, the logits' gradient takes the logits' place.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gpt::cuda {

// Row r of the logits begins at r * distance floats, and so does its gradient, in elements of T:
// rows of those are distance * 4 / sizeof(T) apart.
struct Classifier {
  float* logits;
  std::int64_t rows, vocabulary, distance;
  const std::int32_t* targets;  // [rows]
  float* losses;                // [rows]
  const float* gradient_scale;  // of d(mean loss), on the device
  float mean_rows;              // rows that the mean is over
};

template <class T>
void differentiate_logits(const Classifier& call, cudaStream_t stream);

// Of `count` losses, summed in a fixed order in fp64.
void mean_loss(const float* losses, std::int64_t count, float* mean, cudaStream_t stream);

}  // namespace gpt::cuda
