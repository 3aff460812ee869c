#include "comm/wire/cpu/kernels.h"

namespace zero::comm::wire {

extern const Kernels avx2_kernels, avx512_kernels;

const Kernels* find_kernels(Level level) {
  switch (level) {
    case Level::portable:
      return &portable_kernels;
    case Level::avx2:  // every CPU with AVX2 and FMA has F16C
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2_kernels
                                                                             : nullptr;
    case Level::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                 ? &avx512_kernels
                 : nullptr;
  }
  return nullptr;
}

}  // namespace zero::comm::wire
