// The operations of blocks on a GPU: LayerNorm or RMSNorm, y = x W + b, rotary tables, and the
// resources that these share while they run. The counterparts on the CPU are norm.h, linear.h,
// rope.h and layers.h.
#pragma once

#include <cstdint>

#include "examples/gpt/cpu/linear.h"
#include "examples/gpt/cpu/norm.h"
#include "examples/gpt/cpu/rope.h"
#include "examples/gpt/cuda/attention.h"
#include "examples/gpt/cuda/device_buffer.h"
#include "examples/gpt/cuda/device_matmul.h"
#include "examples/gpt/cuda/fused_attention.h"
#include "examples/gpt/cuda/joined_weights.h"
#include "examples/gpt/cuda/row_kernels.h"
#include "examples/gpt/model/dims.h"

namespace gpt::cuda {

// Keeps the statistics of the last forward() for backward().
template <class T>
class Norm {
 public:
  Norm(const Dims& dims, cudaStream_t stream)
      : dims_(dims),
        stream_(stream),
        mean_(dims.norm == NormKind::rms ? 0 : dims.rows()),
        inverse_(dims.rows()) {}

  void forward(const T* in, NormValues<T> values, T* out) {
    norm_forward(LayerNormForward<T>{in, values.weight, values.bias, out, mean_.data(),
                                     inverse_.data(), dims_.channels, dims_.epsilon},
                 dims_.rows(), stream_);
  }

  // din += the input's gradient. `scratch` has the size of column_scratch().
  void backward(const T* dout, const T* in, NormValues<T> values, T* din,
                NormGradients<T> gradients, float* scratch) {
    const LayerNormBackward<T> call{dout,
                                    in,
                                    values.weight,
                                    mean_.data(),
                                    inverse_.data(),
                                    din,
                                    gradients.weight,
                                    gradients.bias,
                                    dims_.rows(),
                                    dims_.channels};
    norm_backward(call, scratch, stream_);
  }

  std::int64_t bytes() const { return static_cast<std::int64_t>(mean_.bytes() + inverse_.bytes()); }

 private:
  Dims dims_;
  cudaStream_t stream_;
  DeviceBuffer<float> mean_, inverse_;
};

template <class T>
class Linear {
 public:
  Linear(const LinearShape& shape, DeviceMatmul& matmul)
      : shape_(shape),
        matmul_(matmul),
        forward_{forward_plan(shape.forward(false)), forward_plan(shape.forward(true))},
        weight_{&plan(shape.weight_gradient(false)), &plan(shape.weight_gradient(true))},
        input_(&plan(shape.input_gradient())),
        gelu_(gelu_plan(shape.forward(false), Epilogue::gelu)),
        gelu_gradient_(gelu_plan(shape.input_gradient(), Epilogue::gelu_gradient)) {}

  // y = x W + b, and the addend, if any.
  void forward(const T* x, const LinearValues<T>& values, T* y, const T* addend = nullptr) {
    const Forward& forward = forward_[addend != nullptr];
    matmul_.run(*forward.plan, {x, values.weight, y, values.bias, addend});
    if (forward.adds_bias) add_bias(y, values.bias, {shape_.rows, shape_.out}, matmul_.stream());
  }

  void input_gradient(const T* dy, const T* weight, T* dx) {
    matmul_.run(*input_, {dy, weight, dx, nullptr, dx});
  }

  // y = gelu(before), before = x W + b
  void forward_gelu(const T* x, const LinearValues<T>& values, T* before, T* y) {
    if (gelu_ != nullptr) {
      matmul_.run(*gelu_, {x, values.weight, y, values.bias, nullptr, before});
      return;
    }
    forward(x, values, before);
    gelu_forward(before, y, shape_.rows * shape_.out, matmul_.stream());
  }

  // Like input_gradient(), if the input is gelu(before): computes the gradient of `before`.
  void gelu_gradient(const T* dy, const T* weight, const T* before, T* dbefore) {
    if (gelu_gradient_ != nullptr) {
      matmul_.run(*gelu_gradient_, {dy, weight, dbefore, nullptr, nullptr, const_cast<T*>(before)});
      return;
    }
    input_gradient(dy, weight, dbefore);
    gelu_backward(before, dbefore, shape_.rows * shape_.in, matmul_.stream());
  }

  void parameter_gradients(const T* x, const T* dy, const LinearGradients<T>& gradients,
                           float* scratch) {
    const DeviceMatmul::Plan& plan = *weight_[gradients.weight.beta != 0];
    T* to = gradients.weight.data;
    if (shape_.transposed())
      matmul_.run(plan, {dy, x, to, nullptr, to});
    else
      matmul_.run(plan, {x, dy, to, nullptr, to});
    if (shape_.bias)
      column_sum(ColumnSum<T>{dy, gradients.bias, shape_.rows, shape_.out}, scratch,
                 matmul_.stream());
  }

 private:
  static constexpr zero::DType dtype = zero::dtype_of<T>::value;

  const DeviceMatmul::Plan& plan(const ProductShape& shape) {
    return matmul_.prepare(shape, {dtype, dtype});
  }
  struct Forward {
    const DeviceMatmul::Plan* plan;
    bool
        adds_bias;  // by a kernel of our own, since cuBLASLt has no product of this shape that does
  };
  Forward forward_plan(ProductShape shape) {
    if (!shape.bias) return {&plan(shape), false};
    if (const auto* there = matmul_.prepare_if_there(shape, {dtype, dtype})) return {there, false};
    shape.bias = false;
    return {&plan(shape), true};
  }
  // Returns null if our own kernels compute GELU, as always in fp32, since cuBLASLt does not state
  // the error of its tanh; its 16-bit matrices need rows of a multiple of 8.
  const DeviceMatmul::Plan* gelu_plan(const ProductShape& shape, Epilogue epilogue) {
    if (dtype == zero::DType::fp32 || shape.ldc % 8 != 0 || shape.accumulate) return nullptr;
    return matmul_.prepare_if_there(shape, {dtype, dtype, epilogue});
  }

  LinearShape shape_;
  DeviceMatmul& matmul_;
  Forward forward_[2];
  const DeviceMatmul::Plan *weight_[2], *input_, *gelu_, *gelu_gradient_;
};

// Tables for every position and pair of channels, [sequence, head channels / 2].
class Rope {
 public:
  Rope(const RopeConfig& config, std::int64_t sequence, std::int64_t head_channels,
       cudaStream_t stream)
      : cosines_(sequence * head_channels / 2), sines_(cosines_.size()) {
    const RopeTable<float> table(config, sequence, head_channels);
    cosines_.fill(table.cosines.data(), stream);
    sines_.fill(table.sines.data(), stream);
  }

  const float* cosines() const { return cosines_.data(); }
  const float* sines() const { return sines_.data(); }
  std::int64_t bytes() const {
    return static_cast<std::int64_t>(cosines_.bytes() + sines_.bytes());
  }

 private:
  DeviceBuffer<float> cosines_, sines_;
};

template <class E>
class DeviceLayers {
 public:
  using T = E;
  using Acc = float;
  using Products = DeviceMatmul;
  using Linear = cuda::Linear<T>;
  using Norm = cuda::Norm<T>;
  using Rope = cuda::Rope;
  template <class U>
  using Buffer = DeviceBuffer<U>;
  static constexpr bool joins_products = true;
  using Weight = typename JoinedWeights<T>::Weight;
  using WeightGradient = typename JoinedWeights<T>::Gradient;

  // `columns`: of the widest sum over rows; `distances`: of the rows that attend() reads.
  DeviceLayers(const Dims& dims, DeviceMatmul& matmul, std::int64_t columns, RowDistances distances)
      : dims_(dims),
        stream_(matmul.stream()),
        attention_shape_{dims, zero::dtype_of<T>::value, distances},
        attention_(choose_attention(attention_shape_, stream_)),
        deltas_(attention_.kernels ? 0 : dims.batch * dims.heads * dims.sequence),
        sums_(column_scratch(dims.rows(), columns)),
        joined_(stream_) {}

  Norm make_norm(std::int64_t channels) const {
    Dims dims = dims_;
    dims.channels = channels;
    return {dims, stream_};
  }
  Rope make_rope(const RopeConfig& rope) const {
    return {rope, dims_.sequence, dims_.head_channels, stream_};
  }

  void add_product(Linear& linear, const T* x, const LinearValues<T>& values, const T* addend, T* y,
                   std::int64_t) {
    linear.forward(x, values, y, addend);
  }
  void parameter_gradients(Linear& linear, const T* x, const T* dy,
                           const LinearGradients<T>& gradients) {
    linear.parameter_gradients(x, dy, gradients, sums_.data());
  }
  // Weights of several linears that run as one product, next to each other.
  const T* joined_weight(const std::vector<Weight>& weights) { return joined_.matrix(weights); }
  void joined_gradients(Linear& linear, const T* x, const T* dy,
                        const std::vector<WeightGradient>& gradients) {
    joined_.write(gradients, [&](const zero::GradTarget<T>& target) {
      linear.parameter_gradients(x, dy, {target, nullptr}, sums_.data());
    });
  }
  void norm_backward(Norm& norm, const T* dout, const T* in, const NormValues<T>& values, T* din,
                     const NormGradients<T>& gradients) {
    norm.backward(dout, in, values, din, gradients, sums_.data());
  }

  void attend(const Qkv<const T>& qkv, T* out, float* log_sums) {
    const AttentionForward<T> call{dims_, qkv, out, log_sums};
    if (attention_.kernels)
      fused().forward(call);
    else
      attention_forward(call, stream_);
  }
  void attend_backward(const typename Attention<T>::Backward& t) {
    const AttentionBackward<T> call{dims_,      t.qkv,          t.out, t.dout,
                                    t.log_sums, deltas_.data(), t.dqkv};
    if (attention_.kernels)
      fused().backward(call);
    else
      attention_backward(call, stream_);
  }

  void turn(const Rope& rope, T* data, const RowsOf& rows) { rotate_by(rope, data, rows, 1); }
  void turn_back(const Rope& rope, T* data, const RowsOf& rows) { rotate_by(rope, data, rows, -1); }

  void product_and_gelu(Linear& linear, const T* x, const LinearValues<T>& values, T* before, T* y,
                        std::int64_t) {
    linear.forward_gelu(x, values, before, y);
  }
  void gelu_input_gradient(Linear& linear, const T* dy, const T* weight, const T* before,
                           T* dbefore, std::int64_t) {
    linear.gelu_gradient(dy, weight, before, dbefore);
  }
  void gelu_forward(const T* before, T* y, std::int64_t count) {
    cuda::gelu_forward(before, y, count, stream_);
  }
  void gelu_backward(const T* before, T* gradient, std::int64_t count) {
    cuda::gelu_backward(before, gradient, count, stream_);
  }
  void swiglu_forward(const SwigluForward<T>& call, const RowsOf& rows) {
    cuda::swiglu_forward(call, rows, stream_);
  }
  void swiglu_backward(const SwigluBackward<T>& call, const RowsOf& rows) {
    cuda::swiglu_backward(call, rows, stream_);
  }

  void add(const T* a, const T* b, T* out, std::int64_t count) {
    cuda::add(a, b, out, count, stream_);
  }
  void clear(T* data, std::int64_t count) {
    check(cudaMemsetAsync(data, 0, static_cast<std::size_t>(count) * sizeof(T), stream_),
          "cudaMemsetAsync");
  }

  std::int64_t bytes() const {
    return static_cast<std::int64_t>(deltas_.bytes() + sums_.bytes()) + joined_.bytes() +
           (attention_.kernels ? attention_.kernels->bytes() : 0);
  }
  const std::string& attention() const { return attention_.said; }

 private:
  FusedAttention<T> fused() { return {attention_shape_, *attention_.kernels}; }
  void rotate_by(const Rope& rope, T* data, const RowsOf& rows, float direction) {
    rotate(Rotation<T>{data, rope.cosines(), rope.sines(), dims_.sequence,
                       rows.width / dims_.head_channels, dims_.head_channels, rows.distance,
                       direction},
           rows.rows, stream_);
  }

  Dims dims_;
  cudaStream_t stream_;
  AttentionShape attention_shape_;
  AttentionChoice attention_;
  DeviceBuffer<float> deltas_, sums_;  // for attention, and for columns
  JoinedWeights<T> joined_;
};

}  // namespace gpt::cuda
