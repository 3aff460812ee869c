// The cross-entropy of a chunk of rows, forward and backward at once: probabilities are never
// stored, and the logits' gradient replaces the logits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gpt::cuda {

// Rows of logits are `distance` elements apart, a multiple of 8, and start at aligned addresses.
// Columns from `vocabulary` to `distance` are never read as logits; their gradient is zero.
template <class T>
struct Classifier {
  T* logits;
  std::int64_t rows, vocabulary, distance;
  const std::int32_t* targets;  // [rows]
  float* losses;                // [rows]
  const float* gradient_scale;  // multiplies d(mean loss), on the device
  float mean_rows;              // number of rows of the mean
};

// Returns the number of elements of a row that a block may keep in shared memory so that two blocks
// run at once on a processor of the current GPU; prepares the kernel for that.
template <class T>
std::int64_t prepare_classifier(std::int64_t vocabulary);

// Each row is read from the device's memory once, up to the `kept` elements that a block keeps; the
// result does not depend on `kept`.
template <class T>
void differentiate_logits(const Classifier<T>& call, std::int64_t kept, cudaStream_t stream);

// Averages `count` losses, summed in a fixed order in fp64.
void mean_loss(const float* losses, std::int64_t count, float* mean, cudaStream_t stream);

// to = sums, or to += sums if `add`; rounded once. Arrays start at aligned addresses.
template <class T>
void round_sums(const float* sums, T* to, bool add, std::int64_t count, cudaStream_t stream);

}  // namespace gpt::cuda
