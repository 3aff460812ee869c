// LayerNorm or RMSNorm, and y = x W + b, on a GPU: what norm.h and linear.h are on the CPU.
#pragma once

#include <cstdint>

#include "examples/gpt/cuda/device_buffer.h"
#include "examples/gpt/cuda/device_matmul.h"
#include "examples/gpt/cuda/row_kernels.h"
#include "examples/gpt/dims.h"
#include "examples/gpt/linear.h"
#include "examples/gpt/norm.h"

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

  // din += the input's gradient. `scratch` as column_scratch() says.
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
    norm_backward(call, stream_);
    norm_parameters(call, scratch, stream_);
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
        forward_{&plan(shape.forward(false)), &plan(shape.forward(true))},
        weight_{&plan(shape.weight_gradient(false)), &plan(shape.weight_gradient(true))},
        input_(&plan(shape.input_gradient())) {}

  // y = x W + b, and the addend, where there is one.
  void forward(const T* x, const LinearValues<T>& values, T* y, const T* addend = nullptr) {
    matmul_.run(*forward_[addend != nullptr], {x, values.weight, y, values.bias, addend});
  }

  void input_gradient(const T* dy, const T* weight, T* dx) {
    matmul_.run(*input_, {dy, weight, dx, nullptr, dx});
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

  LinearShape shape_;
  DeviceMatmul& matmul_;
  const DeviceMatmul::Plan *forward_[2], *weight_[2], *input_;
};

}  // namespace gpt::cuda
