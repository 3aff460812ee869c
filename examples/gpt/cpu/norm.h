// LayerNorm, or RMSNorm (no mean, no bias), over the rows of a micro-batch, on the threads of a
// pool.
#pragma once

#include <cstdint>

#include "examples/gpt/cpu/buffer.h"
#include "examples/gpt/cpu/kernels.h"
#include "examples/gpt/model/dims.h"
#include "zero/base/cpu/thread_pool.h"

namespace gpt {

// Biases are null for RMSNorm.
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
class Norm {
 public:
  Norm(const Dims& dims, zero::ThreadPool& pool)
      : rows_(dims.rows()),
        channels_(dims.channels),
        epsilon_(dims.epsilon),
        pool_(pool),
        is_rms_(dims.norm == NormKind::rms),
        mean_(is_rms_ ? 0 : dims.rows()),
        inverse_(dims.rows()) {}

  void forward(const T* in, NormValues<T> values, T* out) {
    const LayerNormForward<T> call{in,           values.weight,   values.bias, out,
                                   mean_.data(), inverse_.data(), channels_,   epsilon_};
    const auto kernel = is_rms_ ? kernels<T>().rms_norm_forward : kernels<T>().layer_norm_forward;
    pool_.for_ranges(rows_, 1, [&](std::int64_t begin, std::int64_t end) {
      kernel(call, {begin, end});
    });
  }

  // din += the input's gradient.
  void backward(const T* dout, const T* in, NormValues<T> values, T* din,
                NormGradients<T> gradients) {
    const LayerNormBackward<T> call{
        dout,           in,    values.weight, mean_.data(), inverse_.data(), din, gradients.weight,
        gradients.bias, rows_, channels_};
    const Kernels<T>& k = kernels<T>();
    const auto of_rows = is_rms_ ? k.rms_norm_backward : k.layer_norm_backward;
    const auto of_columns = is_rms_ ? k.rms_norm_parameters : k.layer_norm_parameters;
    pool_.for_ranges(rows_, 1, [&](std::int64_t begin, std::int64_t end) {
      of_rows(call, {begin, end});
    });
    pool_.for_ranges(channels_, 64, [&](std::int64_t begin, std::int64_t end) {
      of_columns(call, {begin, end});
    });
  }

  std::int64_t bytes() const { return static_cast<std::int64_t>(mean_.bytes() + inverse_.bytes()); }

 private:
  std::int64_t rows_, channels_;
  double epsilon_;
  zero::ThreadPool& pool_;
  bool is_rms_;
  Buffer<accumulate_t<T>> mean_, inverse_;
};

}  // namespace gpt
