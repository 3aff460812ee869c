#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <zero/zero.h>

namespace zero {

template <>
struct dtype_of<__nv_bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<__half> {
  static constexpr DType value = DType::fp16;
};

inline cudaStream_t native(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}
inline Stream borrow(cudaStream_t stream) {
  return {stream};
}

}  // namespace zero
