#include "comm/wire/cpu/avx512_codes.h"
#include "comm/wire/cpu/kernel_set.h"

namespace zero::comm::wire {

const Kernels avx512_kernels = KernelSet<Avx512x32>::kernels;

}  // namespace zero::comm::wire
