#include "optim/cpu/kernel_set.h"
#include "zero/base/simd/avx512.h"
#include "zero/base/simd/vector.h"

namespace zero::optim::cpu {

const Kernels avx512_kernels = KernelSet<simd::Vector<simd::Avx512>>::kernels;

}  // namespace zero::optim::cpu
