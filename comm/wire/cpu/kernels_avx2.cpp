#include "comm/wire/cpu/avx2_codes.h"
#include "comm/wire/cpu/kernel_set.h"

namespace zero::comm::wire {

const Kernels avx2_kernels = KernelSet<Avx2x32>::kernels;

}  // namespace zero::comm::wire
