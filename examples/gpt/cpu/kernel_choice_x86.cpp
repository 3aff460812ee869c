#include "examples/gpt/cpu/kernels.h"
#include "zero/base/simd.h"

namespace gpt {

template <class T>
const Kernels<T>& kernels() {
  static const Kernels<T>& chosen = [&]() -> const Kernels<T>& {
    switch (zero::simd_level()) {
      case zero::SimdLevel::avx512:
        return avx512::kernels<T>();
      case zero::SimdLevel::avx2:
        return avx2::kernels<T>();
      default:
        return baseline::kernels<T>();
    }
  }();
  return chosen;
}

template const Kernels<float>& kernels<float>();
template const Kernels<zero::bf16>& kernels<zero::bf16>();
template const Kernels<zero::fp16>& kernels<zero::fp16>();
template const Kernels<double>& kernels<double>();

}  // namespace gpt
