// For programs whose kernels run on GPUs, in place of zero/zero.h; such programs link
// ZeroCore::cuda. Maps CUDA's 16-bit types to DType, for scope.value<__nv_bfloat16>() and
// scope.value<__half>().
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

// The stream on which the program launches kernels: native(runtime.stream()).
inline cudaStream_t native(Stream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}
// For RuntimeOptions::stream: the engine works in the order of the program's own stream, which the
// program keeps and destroys after the Runtime.
inline Stream borrow(cudaStream_t stream) {
  return {stream};
}

}  // namespace zero
