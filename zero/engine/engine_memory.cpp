#include "zero/engine/engine_memory.h"

#include "zero/base/number_text.h"
#include "zero/checkpoint/checkpoint_reader.h"

namespace zero::detail {

namespace {

// Space for generated code of kernels, without which oneDNN crashes, and for 64 MiB that the C
// library maps for each of the first threads.
constexpr std::int64_t address_space_margin = std::int64_t{256} << 20;

}  // namespace

void require_address_space() {
  const std::int64_t left = address_space_left();
  if (left < address_space_margin)
    throw MemoryError("the limit of address space leaves " + byte_text(left) +
                      " in addition to what the engine holds, and kernels and threads need " +
                      byte_text(address_space_margin) + ": raise the limit (ulimit -v)");
}

EngineMemory::EngineMemory(TrainState& train, StepScalars& scalars, StepAgreement& agreement,
                           Updates& updates, const std::vector<MemoryRoom>& rooms)
    : ledger_(train.runtime.ledger()) {
  Ledger& ledger = train.runtime.ledger();
  baseline_bytes_ = resident_data_bytes();
  ledger.restart_peaks();
  train.arrays.plan(ledger);
  train.buffers.plan(ledger);
  if (train.offload) train.offload->plan(ledger);
  agreement.plan(ledger);
  updates.plan(ledger);
  if (train.config.zero_core.track_changes) train.changes.plan(ledger);
  with_memory_table(ledger, [&] {
    const Tier host = train.runtime.device().is_host() ? Tier::memory : Tier::host;
    const MemoryAccount all = ledger.total(host);
    require_memory(rooms, all.planned - all.current + checkpoint::read_buffer_bytes,
                   "the engine, and the buffer of saves and loads",
                   "use a higher ZeRO stage, more hosts, or offload to a file (device nvme)");
  });
  with_memory_table(ledger, [&] {
    arena_ = train.runtime.device().reserve_untouched(
        train.arrays.bytes() + agreement.exchanged_bytes(),
        train.collective() ? Arena::Sharing::node : Arena::Sharing::private_memory, "zero engine");
  });
  train.arrays.allocate(arena_, ledger);
  agreement.allocate(arena_, ledger);
  scalars.set_scaler(train.scaler.state());
  updates.allocate(ledger);
  with_memory_table(ledger, [&] {
    train.buffers.allocate(ledger);
    if (train.config.zero_core.track_changes) train.changes.allocate(ledger);
    if (train.offload) train.offload->open(ledger);
  });
}

}  // namespace zero::detail
