// Causal grouped-query attention on a GPU without a score matrix: a few lanes hold a row of queries
// (or of keys) in registers, and walk the other side in tiles. Weights stay fp32. Sums run in the
// order of positions and heads, without atomics, so backward computes the scores twice: once for
// the queries' gradients and once for those of keys and values.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "examples/gpt/cpu/attention.h"
#include "examples/gpt/model/dims.h"

namespace gpt::cuda {

// The largest number of channels of a head.
inline constexpr std::int64_t most_head_channels = 128;

// out [rows, query channels]; backward needs log_sums [batch, heads, sequence].
template <class T>
struct AttentionForward {
  Dims dims;
  Qkv<const T> qkv;
  T* out;
  float* log_sums;
};

// `deltas` is scratch of the size of log_sums.
template <class T>
struct AttentionBackward {
  Dims dims;
  Qkv<const T> qkv;
  const T* out;
  const T* dout;
  const float* log_sums;
  float* deltas;
  Qkv<T> dqkv;  // overwritten
};

template <class T>
void attention_forward(const AttentionForward<T>& call, cudaStream_t stream);
template <class T>
void attention_backward(const AttentionBackward<T>& call, cudaStream_t stream);

}  // namespace gpt::cuda
