#include "optim/cpu/kernel_set.h"
#include "zero/base/simd/scalar1.h"

namespace zero::optim::cpu {

const Kernels scalar_kernels = KernelSet<simd::Scalar1>::kernels;

const Kernels& kernels([[maybe_unused]] SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return avx512_kernels;
  if (level == SimdLevel::avx2) return avx2_kernels;
#endif
  return scalar_kernels;
}

}  // namespace zero::optim::cpu
