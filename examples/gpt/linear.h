// y = x W + b with W [in, out] (Hugging Face's Conv1D layout), and its gradients.
#pragma once

#include <cstdint>

#include "examples/gpt/matmul.h"
#include "zero/zero.h"

namespace gpt {

template <class T>
class Linear {
 public:
  Linear(std::int64_t rows, std::int64_t in, std::int64_t out, Matmul& matmul)
      : rows_(rows), in_(in), out_(out), matmul_(matmul) {
    for (const bool add : {false, true}) {
      matmul.prepare<T, T>(forward_shape(add));
      matmul.prepare<T, T>(weight_shape(add));
    }
    matmul.prepare<T, T>(input_shape());
  }

  // add: y += x W + b
  void forward(const T* x, const T* weight, const T* bias, T* y, bool add = false) {
    matmul_.run<T, T>({forward_shape(add), x, weight, y, bias});
  }

  void input_gradient(const T* dy, const T* weight, T* dx) {
    matmul_.run<T, T>({input_shape(), dy, weight, dx});
  }

  void parameter_gradients(const T* x, const T* dy, zero::GradTarget<T> dweight, T* dbias) {
    matmul_.run<T, T>({weight_shape(dweight.beta != 0), x, dy, dweight.data});
    const ColumnSum<T> sum{dy, dbias, rows_, out_};
    matmul_.pool().for_ranges(out_, 64, [&](std::int64_t begin, std::int64_t end) {
      kernels<T>().column_sum(sum, {begin, end});
    });
  }

 private:
  ProductShape forward_shape(bool add) const {
    return {.m = rows_,
            .n = out_,
            .k = in_,
            .lda = in_,
            .ldb = out_,
            .ldc = out_,
            .bias = true,
            .accumulate = add};
  }
  ProductShape input_shape() const {
    return {
        .m = rows_, .n = in_, .k = out_, .transpose_b = true, .lda = out_, .ldb = out_, .ldc = in_};
  }
  ProductShape weight_shape(bool add) const {
    return {.m = in_,
            .n = out_,
            .k = rows_,
            .transpose_a = true,
            .lda = in_,
            .ldb = out_,
            .ldc = out_,
            .accumulate = add};
  }

  std::int64_t rows_, in_, out_;
  Matmul& matmul_;
};

}  // namespace gpt
