#include "examples/gpt/kernels.h"

namespace gpt {

template <class T>
const Kernels<T>& kernels() {
  static const Kernels<T>& chosen = __builtin_cpu_supports("avx512f") &&
                                            __builtin_cpu_supports("avx512bw") &&
                                            __builtin_cpu_supports("avx512vl")
                                        ? avx512::kernels<T>()
                                    : __builtin_cpu_supports("avx2") ? avx2::kernels<T>()
                                                                     : baseline::kernels<T>();
  return chosen;
}

template const Kernels<float>& kernels<float>();
template const Kernels<zero::bf16>& kernels<zero::bf16>();
template const Kernels<zero::fp16>& kernels<zero::fp16>();
template const Kernels<double>& kernels<double>();

}  // namespace gpt
