#include "optim/cpu/avx512x16.h"
#include "optim/cpu/kernel_set.h"

namespace zero::optim::cpu {

extern const Kernels avx512_kernels;
const Kernels avx512_kernels = KernelSet<Avx512x16>::kernels;

}  // namespace zero::optim::cpu
