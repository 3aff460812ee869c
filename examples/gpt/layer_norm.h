// LayerNorm over the rows of a micro batch, on the threads of a pool.
#pragma once

#include <cstdint>

#include "examples/gpt/buffer.h"
#include "examples/gpt/kernels.h"
#include "zero/base/cpu/thread_pool.h"

namespace gpt {

template <class T>
struct NormValues {
  const T* weight;
  const T* bias;
};

template <class T>
struct NormGradients {
  T* weight;
  T* bias;
};

// Keeps the statistics of the last forward() for backward().
template <class T>
class LayerNorm {
 public:
  LayerNorm(std::int64_t rows, std::int64_t channels, double epsilon, zero::ThreadPool& pool)
      : rows_(rows),
        channels_(channels),
        epsilon_(epsilon),
        pool_(pool),
        mean_(rows),
        inverse_(rows) {}

  void forward(const T* in, NormValues<T> values, T* out) {
    const LayerNormForward<T> call{in,           values.weight,   values.bias, out,
                                   mean_.data(), inverse_.data(), channels_,   epsilon_};
    pool_.for_ranges(rows_, 1, [&](std::int64_t begin, std::int64_t end) {
      kernels<T>().layer_norm_forward(call, {begin, end});
    });
  }

  // din += the input's gradient.
  void backward(const T* dout, const T* in, NormValues<T> values, T* din,
                NormGradients<T> gradients) {
    const LayerNormBackward<T> call{
        dout,           in,    values.weight, mean_.data(), inverse_.data(), din, gradients.weight,
        gradients.bias, rows_, channels_};
    pool_.for_ranges(rows_, 1, [&](std::int64_t begin, std::int64_t end) {
      kernels<T>().layer_norm_backward(call, {begin, end});
    });
    pool_.for_ranges(channels_, 64, [&](std::int64_t begin, std::int64_t end) {
      kernels<T>().layer_norm_parameters(call, {begin, end});
    });
  }

  std::int64_t bytes() const { return static_cast<std::int64_t>(mean_.bytes() + inverse_.bytes()); }

 private:
  std::int64_t rows_, channels_;
  double epsilon_;
  zero::ThreadPool& pool_;
  Buffer<accumulate_t<T>> mean_, inverse_;
};

}  // namespace gpt
