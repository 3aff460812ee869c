#include "optim/cpu/avx512x16.h"
#include "optim/cpu/kernel_set.h"

namespace zero::optim::cpu {

const Kernels avx512_kernels = KernelSet<Avx512x16>::kernels;

}  // namespace zero::optim::cpu
