#include "optim/cpu/kernel_set.h"
#include "optim/cpu/scalar1.h"

namespace zero::optim::cpu {

const Kernels scalar_kernels = KernelSet<Scalar1>::kernels;

}  // namespace zero::optim::cpu
