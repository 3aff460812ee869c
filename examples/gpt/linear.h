// y = x W + b, and its gradients.
#pragma once

#include <cstdint>

#include "examples/gpt/matmul.h"
#include "zero/zero.h"

namespace gpt {

// A null bias: there is none.
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

// Hugging Face stores W as Conv1D does (GPT-2), or as nn.Linear does.
enum class WeightLayout { in_out, out_in };

struct LinearShape {
  std::int64_t rows, in, out;
  WeightLayout layout = WeightLayout::in_out;
  bool bias = true;
  // input_gradient() adds to that of another user of x.
  bool shares_input = false;
};

template <class T>
class Linear {
 public:
  Linear(const LinearShape& shape, Matmul& matmul) : shape_(shape), matmul_(matmul) {
    for (const bool add : {false, true}) {
      matmul.prepare<T, T>(forward_shape(add));
      matmul.prepare<T, T>(weight_shape(add));
    }
    matmul.prepare<T, T>(input_shape());
  }

  // add: y += x W + b
  void forward(const T* x, const LinearValues<T>& values, T* y, bool add = false) {
    matmul_.run<T, T>({forward_shape(add), x, values.weight, y, values.bias});
  }

  void input_gradient(const T* dy, const T* weight, T* dx) {
    matmul_.run<T, T>({input_shape(), dy, weight, dx});
  }

  void parameter_gradients(const T* x, const T* dy, const LinearGradients<T>& gradients) {
    const bool add = gradients.weight.beta != 0;
    if (transposed())
      matmul_.run<T, T>({weight_shape(add), dy, x, gradients.weight.data});
    else
      matmul_.run<T, T>({weight_shape(add), x, dy, gradients.weight.data});
    if (!shape_.bias) return;
    const ColumnSum<T> sum{dy, gradients.bias, shape_.rows, shape_.out};
    matmul_.pool().for_ranges(shape_.out, 64, [&](std::int64_t begin, std::int64_t end) {
      kernels<T>().column_sum(sum, {begin, end});
    });
  }

 private:
  bool transposed() const { return shape_.layout == WeightLayout::out_in; }
  // Between rows of W.
  std::int64_t weight_distance() const { return transposed() ? shape_.in : shape_.out; }

  ProductShape forward_shape(bool add) const {
    return {.m = shape_.rows,
            .n = shape_.out,
            .k = shape_.in,
            .transpose_b = transposed(),
            .lda = shape_.in,
            .ldb = weight_distance(),
            .ldc = shape_.out,
            .bias = shape_.bias,
            .accumulate = add};
  }
  ProductShape input_shape() const {
    return {.m = shape_.rows,
            .n = shape_.in,
            .k = shape_.out,
            .transpose_b = !transposed(),
            .lda = shape_.out,
            .ldb = weight_distance(),
            .ldc = shape_.in,
            .accumulate = shape_.shares_input};
  }
  // [in, out] = x^T dy, or [out, in] = dy^T x
  ProductShape weight_shape(bool add) const {
    const std::int64_t m = transposed() ? shape_.out : shape_.in, n = weight_distance();
    return {.m = m,
            .n = n,
            .k = shape_.rows,
            .transpose_a = true,
            .lda = m,
            .ldb = n,
            .ldc = n,
            .accumulate = add};
  }

  LinearShape shape_;
  Matmul& matmul_;
};

}  // namespace gpt
