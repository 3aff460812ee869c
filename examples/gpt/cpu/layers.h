// The operations of blocks on the CPU, and the resources that all layers share: attention and
// element-wise kernels over a pool of threads. cuda/layers.h has the same interface for a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "examples/gpt/cpu/attention.h"
#include "examples/gpt/cpu/buffer.h"
#include "examples/gpt/cpu/kernels.h"
#include "examples/gpt/cpu/linear.h"
#include "examples/gpt/cpu/matmul.h"
#include "examples/gpt/cpu/norm.h"
#include "examples/gpt/cpu/rope.h"
#include "examples/gpt/model/dims.h"

namespace gpt {

template <class E>
class CpuLayers {
 public:
  using T = E;
  using Acc = accumulate_t<T>;
  using Products = Matmul;
  using Linear = gpt::Linear<T>;
  using Norm = gpt::Norm<T>;
  using Rope = gpt::Rope<T>;
  template <class U>
  using Buffer = gpt::Buffer<U>;
  // Not joined, so only attend() sees gaps between rows.
  static constexpr bool joins_products = false;

  // The unnamed parameters are for GPUs: columns of the widest sum over rows, and rows that
  // attend() reads.
  CpuLayers(const Dims& dims, Matmul& matmul, std::int64_t, RowDistances)
      : dims_(dims), pool_(matmul.pool()), kernels_(kernels<T>()), attention_(dims, matmul) {}

  Norm make_norm(std::int64_t channels) const {
    Dims dims = dims_;
    dims.channels = channels;
    return {dims, pool_};
  }
  Rope make_rope(const RopeConfig& rope) const {
    return {rope, dims_.sequence, dims_.head_channels};
  }

  // y = x W + b + addend; `count` elements
  void add_product(Linear& linear, const T* x, const LinearValues<T>& values, const T* addend, T* y,
                   std::int64_t count) {
    std::copy_n(addend, count, y);
    linear.forward(x, values, y, true);
  }
  void parameter_gradients(Linear& linear, const T* x, const T* dy,
                           const LinearGradients<T>& gradients) {
    linear.parameter_gradients(x, dy, gradients);
  }
  // din += the input's gradient
  void norm_backward(Norm& norm, const T* dout, const T* in, const NormValues<T>& values, T* din,
                     const NormGradients<T>& gradients) {
    norm.backward(dout, in, values, din, gradients);
  }

  void attend(const Qkv<const T>& qkv, T* out, Acc* log_sums) {
    attention_.forward(qkv, out, log_sums);
  }
  void attend_backward(const typename Attention<T>::Backward& tensors) {
    attention_.backward(tensors);
  }

  // Rotate rows by position, or back.
  void turn(const Rope& rope, T* data, const RowsOf& rows) {
    rope.rotate({data, rows.rows, heads(rows)}, Rope::Direction::forward, pool_);
  }
  void turn_back(const Rope& rope, T* data, const RowsOf& rows) {
    rope.rotate({data, rows.rows, heads(rows)}, Rope::Direction::back, pool_);
  }

  // y = gelu(before), before = x W + b; `count` elements
  void product_and_gelu(Linear& linear, const T* x, const LinearValues<T>& values, T* before, T* y,
                        std::int64_t count) {
    linear.forward(x, values, before);
    gelu_forward(before, y, count);
  }
  // Computes the gradient of `before`, if the layer's input is gelu(before).
  void gelu_input_gradient(Linear& linear, const T* dy, const T* weight, const T* before,
                           T* dbefore, std::int64_t count) {
    linear.input_gradient(dy, weight, dbefore);
    gelu_backward(before, dbefore, count);
  }
  void gelu_forward(const T* before, T* y, std::int64_t count) {
    for_elements(count, [&](Range range) { kernels_.gelu_forward(before, y, range); });
  }
  // Replaces the gradient of gelu(before) by that of `before`.
  void gelu_backward(const T* before, T* gradient, std::int64_t count) {
    for_elements(count, [&](Range range) { kernels_.gelu_backward(before, gradient, range); });
  }
  void swiglu_forward(const SwigluForward<T>& call, const RowsOf& rows) {
    for_elements(rows.elements(), [&](Range range) { kernels_.swiglu_forward(call, range); });
  }
  void swiglu_backward(const SwigluBackward<T>& call, const RowsOf& rows) {
    for_elements(rows.elements(), [&](Range range) { kernels_.swiglu_backward(call, range); });
  }

  // `out` may alias an addend.
  void add(const T* a, const T* b, T* out, std::int64_t count) {
    for_elements(count, [&](Range range) { kernels_.add(a, b, out, range); });
  }
  void clear(T* data, std::int64_t count) { std::fill_n(data, count, T{}); }

  std::int64_t bytes() const { return attention_.bytes(); }
  // Returns the name of the kernels' origin; empty, since a CPU has no choice.
  std::string attention() const { return ""; }

 private:
  std::int64_t heads(const RowsOf& rows) const { return rows.width / dims_.head_channels; }
  template <class Body>
  void for_elements(std::int64_t count, const Body& body) {
    pool_.for_ranges(count, 1024, [&](std::int64_t begin, std::int64_t end) {
      body(Range{begin, end});
    });
  }

  Dims dims_;
  zero::ThreadPool& pool_;
  const Kernels<T>& kernels_;
  Attention<T> attention_;
};

}  // namespace gpt
