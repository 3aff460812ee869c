// Adafactor's factored second moment on the threads of a rank: the squares of rows and columns,
// then the moments, and the directions.
#pragma once

#include <cstdint>
#include <span>

#include "optim/cpu/elements.h"
#include "optim/device_kernels.h"
#include "zero/base/cpu/thread_pool.h"

namespace zero::optim::cpu {

// Squares of a range of a tensor. No two threads add to the same sum.
struct FactorSums {
  const DeviceUpdate& update;
  const TensorRange& tensor;
  Elements part;  // of the update

  void add(ThreadPool& pool) const;

 private:
  void add_rows(std::int64_t begin, std::int64_t end) const;
  void add_cols(std::int64_t begin, std::int64_t end) const;
  std::int64_t last() const { return tensor.first + part.count(); }
  const std::byte* gradient(std::int64_t at) const {  // by element of the tensor
    return element(update.gradient, update.gradient_dtype, part.begin + at - tensor.first);
  }
};

// Updates the moments and scales of a matrix.
void take_moments(const AdafactorFactors<float>& factors, const FactoredMatrix& matrix);

// Replaces gradients of a range by directions; `at`: elements from the start of the range.
void turn_to_directions(const AdafactorFactors<float>& factors, const TensorRange& tensor,
                        std::int64_t at, std::span<float> gradients);

}  // namespace zero::optim::cpu
