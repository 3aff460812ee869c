#include "optim/cpu/kernels.h"

namespace zero::optim::cpu {

extern const Kernels avx2_kernels, avx512_kernels;

const Kernels* find_kernels(SimdLevel level) {
  switch (level) {
    case SimdLevel::scalar:
      return &scalar_kernels;
    case SimdLevel::avx2:  // every CPU with AVX2 and FMA has F16C
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2_kernels
                                                                             : nullptr;
    case SimdLevel::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                 ? &avx512_kernels
                 : nullptr;
  }
  return nullptr;
}

}  // namespace zero::optim::cpu
