#include "comm/wire/cpu/kernel_set.h"
#include "comm/wire/cpu/portable32.h"

namespace zero::comm::wire {

extern const Kernels avx2_kernels;
const Kernels avx2_kernels = KernelSet<Portable32<Level::avx2>>::kernels;

}  // namespace zero::comm::wire
