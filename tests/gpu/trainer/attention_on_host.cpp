// A replacement of cuDNN: accepts the same shapes as cuDNN, half of an even batch at once, and
// computes by our own kernels.
#include "examples/gpt/cuda/attention.h"
#include "examples/gpt/cuda/attention_kernels.h"
#include "examples/gpt/cuda/device_buffer.h"

namespace gpt::cuda {
namespace {

template <class T>
class KernelsOnHost final : public AttentionKernels {
 public:
  KernelsOnHost(const AttentionShape& shape, cudaStream_t stream)
      : dims_(shape.dims), distances_(shape.distances), stream_(stream) {
    if (dims_.batch % 2 == 0) dims_.batch /= 2;
    deltas_ = DeviceBuffer<float>(dims_.batch * dims_.heads * dims_.sequence);
  }

  std::int64_t samples() const override { return dims_.batch; }
  void forward(const ForwardPointers& p) override {
    attention_forward(AttentionForward<T>{dims_, qkv<const T>(p.query, p.key, p.value),
                                          static_cast<T*>(p.out), p.log_sums},
                      stream_);
  }
  void backward(const BackwardPointers& p) override {
    attention_backward(
        AttentionBackward<T>{dims_, qkv<const T>(p.query, p.key, p.value),
                             static_cast<const T*>(p.out), static_cast<const T*>(p.dout),
                             p.log_sums, deltas_.data(), qkv<T>(p.dquery, p.dkey, p.dvalue)},
        stream_);
  }
  std::int64_t bytes() const override { return static_cast<std::int64_t>(deltas_.bytes()); }

 private:
  template <class P, class Void>
  Qkv<P> qkv(Void* query, Void* key, Void* value) const {
    return {static_cast<P*>(query), static_cast<P*>(key), static_cast<P*>(value), distances_.query,
            distances_.key};
  }

  Dims dims_;
  RowDistances distances_;
  cudaStream_t stream_;
  DeviceBuffer<float> deltas_;
};

}  // namespace

AttentionChoice choose_attention(const AttentionShape& shape, cudaStream_t stream) {
  if (shape.dtype == zero::DType::fp32) return {nullptr, "our own kernels: 16-bit types alone"};
  if (shape.dims.head_channels % 8 != 0) return {nullptr, "our own kernels: multiples of 8 alone"};
  if (shape.dtype == zero::DType::bf16)
    return {std::make_unique<KernelsOnHost<zero::bf16>>(shape, stream), "the stand-in"};
  return {std::make_unique<KernelsOnHost<zero::fp16>>(shape, stream), "the stand-in"};
}

}  // namespace gpt::cuda
