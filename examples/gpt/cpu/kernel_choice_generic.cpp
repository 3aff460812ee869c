#include "examples/gpt/cpu/kernels.h"

namespace gpt {

template <class T>
const Kernels<T>& kernels() {
  return baseline::kernels<T>();
}

template const Kernels<float>& kernels<float>();
template const Kernels<zero::bf16>& kernels<zero::bf16>();
template const Kernels<zero::fp16>& kernels<zero::fp16>();
template const Kernels<double>& kernels<double>();

}  // namespace gpt
