#include "optim/cpu/avx2x8.h"
#include "optim/cpu/kernel_set.h"

namespace zero::optim::cpu {

const Kernels avx2_kernels = KernelSet<Avx2x8>::kernels;

}  // namespace zero::optim::cpu
