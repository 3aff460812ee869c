// A product by Eigen, on the calling thread and on its stack.
#pragma once

#include <Eigen/Core>
#include <algorithm>

#include "examples/gpt/cpu/gemm.h"

namespace gpt {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class A, class B, class C>
void add_product(const A& a, const B& b, C& c) {
  // Panels of C, because Eigen's packed blocks must fit its limit for memory on the stack.
  constexpr Eigen::Index columns = 256;
  for (Eigen::Index first = 0; first < c.cols(); first += columns) {
    const Eigen::Index count = std::min(columns, c.cols() - first);
    c.middleCols(first, count).noalias() += a * b.middleCols(first, count);
  }
}

template <class T>
void eigen_product(const GemmCall& call) {
  using Stride = Eigen::OuterStride<>;
  using In = Eigen::Map<const RowMajor<T>, Eigen::Unaligned, Stride>;
  const ProductShape& s = call.shape;
  const In a(static_cast<const T*>(call.a), s.transpose_a ? s.k : s.m, s.transpose_a ? s.m : s.k,
             Stride(s.lda));
  const In b(static_cast<const T*>(call.b), s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n,
             Stride(s.ldb));
  Eigen::Map<RowMajor<T>, Eigen::Unaligned, Stride> c(static_cast<T*>(call.c), s.m, s.n,
                                                      Stride(s.ldc));
  if (!s.accumulate) c.setZero();
  if (s.bias)
    c.rowwise() += Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(
        static_cast<const T*>(call.bias), s.n);
  if (s.transpose_a && s.transpose_b)
    add_product(a.transpose(), b.transpose(), c);
  else if (s.transpose_a)
    add_product(a.transpose(), b, c);
  else if (s.transpose_b)
    add_product(a, b.transpose(), c);
  else
    add_product(a, b, c);
}

}  // namespace gpt
