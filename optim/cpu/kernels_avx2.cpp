#include "optim/cpu/kernel_set.h"
#include "zero/base/simd/avx2.h"
#include "zero/base/simd/vector.h"

namespace zero::optim::cpu {

const Kernels avx2_kernels = KernelSet<simd::Vector<simd::Avx2>>::kernels;

}  // namespace zero::optim::cpu
