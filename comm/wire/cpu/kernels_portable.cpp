#include "comm/wire/cpu/kernel_set.h"
#include "comm/wire/cpu/portable32.h"

namespace zero::comm::wire {

const Kernels portable_kernels = KernelSet<Portable32>::kernels;

const Kernels& kernels([[maybe_unused]] SimdLevel level) {
#if defined(__x86_64__)
  if (level == SimdLevel::avx512) return avx512_kernels;
  if (level == SimdLevel::avx2) return avx2_kernels;
#endif
  return portable_kernels;
}

}  // namespace zero::comm::wire
