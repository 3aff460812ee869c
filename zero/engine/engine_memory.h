// All memory of an engine, reserved at the start and freed at the end, when work in flight has
// ended and no peer reads the buffers.
#pragma once

#include <cstdint>
#include <string>

#include "zero/base/arena.h"
#include "zero/base/error.h"
#include "zero/runtime/host_memory.h"
#include "zero/state/train_state.h"
#include "zero/step/updates.h"

namespace zero::detail {

// Adds the ledger's table to a MemoryError of the work.
template <class Work>
auto with_memory_table(const Ledger& ledger, const Work& work) {
  try {
    return work();
  } catch (const MemoryError& error) {
    throw MemoryError(std::string(error.what()) + "\n" + ledger.table());
  }
}

class EngineMemory {
 public:
  // Adds all bytes to the ledger's plan, judges the sum with those of the other ranks, then
  // reserves the memory; take() follows. `rooms` as they were before any rank took memory. Throws
  // MemoryError with the ledger's table.
  EngineMemory(TrainState& train, StepScalars& scalars, StepAgreement& agreement, Updates& updates,
               const std::vector<MemoryRoom>& rooms);
  EngineMemory(const EngineMemory&) = delete;

  // Touches the memory, once: after the initial values are there, since the program may hold a copy
  // until then. Throws MemoryError with the ledger's table.
  void take() {
    with_memory_table(ledger_, [&] { arena_.take_pages(); });
  }
  // Memory that peers may read in place.
  Arena& shared_arena() { return arena_; }
  // The process's bytes before the engine took memory.
  std::int64_t baseline_bytes() const { return baseline_bytes_; }

 private:
  const Ledger& ledger_;
  std::int64_t baseline_bytes_ = 0;
  Arena arena_;
};

// Throws MemoryError if a limit of address space (ulimit -v) leaves too little for kernels and
// threads after the engine's memory.
void require_address_space();

}  // namespace zero::detail
