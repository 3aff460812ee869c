// For CPUs other than x86-64.
#include "optim/cpu/kernels.h"

namespace zero::optim::cpu {

const Kernels* find_kernels(SimdLevel level) {
  return level == SimdLevel::scalar ? &scalar_kernels : nullptr;
}

}  // namespace zero::optim::cpu
