// Attention by the kernels of a library, as many samples at once as possible. Same interface as
// attention.h, our own kernels.
#pragma once

#include "examples/gpt/cuda/attention.h"
#include "examples/gpt/cuda/attention_kernels.h"

namespace gpt::cuda {

template <class T>
class FusedAttention {
 public:
  // The kernels must be made for this shape.
  FusedAttention(const AttentionShape& shape, AttentionKernels& kernels)
      : dims_(shape.dims), distances_(shape.distances), kernels_(kernels) {}

  void forward(const AttentionForward<T>& call) const {
    for (std::int64_t first = 0; first < dims_.batch; first += kernels_.samples())
      kernels_.forward({queries(call.qkv.query, first), keys(call.qkv.key, first),
                        keys(call.qkv.value, first), outputs(call.out, first),
                        call.log_sums + statistics(first)});
  }

  // `deltas` is not used.
  void backward(const AttentionBackward<T>& call) const {
    for (std::int64_t first = 0; first < dims_.batch; first += kernels_.samples())
      kernels_.backward({queries(call.qkv.query, first), keys(call.qkv.key, first),
                         keys(call.qkv.value, first), outputs(call.out, first),
                         outputs(call.dout, first), call.log_sums + statistics(first),
                         queries(call.dqkv.query, first), keys(call.dqkv.key, first),
                         keys(call.dqkv.value, first)});
  }

 private:
  // Returns the start of a sample.
  template <class P>
  P* queries(P* data, std::int64_t sample) const {
    return data + sample * dims_.sequence * distances_.query;
  }
  template <class P>
  P* keys(P* data, std::int64_t sample) const {
    return data + sample * dims_.sequence * distances_.key;
  }
  template <class P>
  P* outputs(P* data, std::int64_t sample) const {
    return data + sample * dims_.sequence * dims_.query_channels();
  }
  std::int64_t statistics(std::int64_t sample) const {
    return sample * dims_.heads * dims_.sequence;
  }

  Dims dims_;
  RowDistances distances_;
  AttentionKernels& kernels_;
};

}  // namespace gpt::cuda
