// y = x W + b, and gradients.
#pragma once

#include <cstdint>

#include "examples/gpt/cpu/matmul.h"
#include "examples/gpt/model/operations.h"
#include "zero/zero.h"

namespace gpt {

// A null bias: the linear has none.
template <class T>
struct LinearValues {
  const T* weight;
  const T* bias;
};

template <class T>
struct LinearGradients {
  zero::GradTarget<T> weight;
  T* bias;
};

struct LinearShape {
  std::int64_t rows, in, out;
  WeightLayout layout = WeightLayout::in_out;
  bool bias = true;
  // True if the input's gradient is added to that of another reader of x.
  bool shares_input = false;
  // Distance of rows of the input's gradient, 0 without gaps.
  std::int64_t gradient_distance = 0;

  bool transposed() const { return layout == WeightLayout::out_in; }
  // Distance of rows of W.
  std::int64_t weight_distance() const { return transposed() ? in : out; }

  // add: y += x W + b
  ProductShape forward(bool add) const {
    return {.m = rows,
            .n = out,
            .k = in,
            .transpose_b = transposed(),
            .lda = in,
            .ldb = weight_distance(),
            .ldc = out,
            .bias = bias,
            .accumulate = add};
  }
  ProductShape input_gradient() const {
    return {.m = rows,
            .n = in,
            .k = out,
            .transpose_b = !transposed(),
            .lda = out,
            .ldb = weight_distance(),
            .ldc = gradient_distance > 0 ? gradient_distance : in,
            .accumulate = shares_input};
  }
  // [in, out] = x^T dy, or [out, in] = dy^T x
  ProductShape weight_gradient(bool add) const {
    const std::int64_t m = transposed() ? out : in, n = weight_distance();
    return {.m = m,
            .n = n,
            .k = rows,
            .transpose_a = true,
            .lda = m,
            .ldb = n,
            .ldc = n,
            .accumulate = add};
  }
};

template <class T>
class Linear {
 public:
  Linear(const LinearShape& shape, Matmul& matmul) : shape_(shape), matmul_(matmul) {
    for (const bool add : {false, true}) {
      matmul.prepare<T, T>(shape_.forward(add));
      matmul.prepare<T, T>(shape_.weight_gradient(add));
    }
    matmul.prepare<T, T>(shape_.input_gradient());
  }

  // add: y += x W + b
  void forward(const T* x, const LinearValues<T>& values, T* y, bool add = false) {
    matmul_.run<T, T>({shape_.forward(add), x, values.weight, y, values.bias});
  }

  void input_gradient(const T* dy, const T* weight, T* dx) {
    matmul_.run<T, T>({shape_.input_gradient(), dy, weight, dx});
  }

  void parameter_gradients(const T* x, const T* dy, const LinearGradients<T>& gradients) {
    const bool add = gradients.weight.beta != 0;
    if (shape_.transposed())
      matmul_.run<T, T>({shape_.weight_gradient(add), dy, x, gradients.weight.data});
    else
      matmul_.run<T, T>({shape_.weight_gradient(add), x, dy, gradients.weight.data});
    if (!shape_.bias) return;
    const ColumnSum<T> sum{dy, gradients.bias, shape_.rows, shape_.out};
    matmul_.pool().for_ranges(shape_.out, 64, [&](std::int64_t begin, std::int64_t end) {
      kernels<T>().column_sum(sum, {begin, end});
    });
  }

 private:
  LinearShape shape_;
  Matmul& matmul_;
};

}  // namespace gpt
