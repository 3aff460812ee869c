// For CPUs other than x86-64.
#include "comm/wire/cpu/kernels.h"

namespace zero::comm::wire {

const Kernels* find_kernels(Level level) {
  return level == Level::portable ? &portable_kernels : nullptr;
}

}  // namespace zero::comm::wire
