#include <initializer_list>

#include "comm/wire/cpu/kernel_set.h"
#include "comm/wire/cpu/portable32.h"

namespace zero::comm::wire {

const Kernels portable_kernels = KernelSet<Portable32>::kernels;

const Kernels& kernels() {
  static const Kernels& best = []() -> const Kernels& {
    for (const Level level : {Level::avx512, Level::avx2})
      if (const Kernels* found = find_kernels(level)) return *found;
    return portable_kernels;
  }();
  return best;
}

}  // namespace zero::comm::wire
