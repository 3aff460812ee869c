#include "zero/run/engine_memory.h"

#include "zero/base/notice.h"
#include "zero/base/number_text.h"

namespace zero::detail {

namespace {

// For the kernels' generated code, of which oneDNN crashes where it gets no memory, and 64 MiB that
// the C library maps for each of the first threads.
constexpr std::int64_t address_space_margin = std::int64_t{256} << 20;

}  // namespace

void require_address_space() {
  const std::int64_t left = address_space_left();
  if (left < address_space_margin)
    throw MemoryError("the limit of address space leaves " + byte_text(left) +
                      " beside what the engine holds, and kernels and threads need " +
                      byte_text(address_space_margin) + ": raise the limit (ulimit -v)");
}

EngineMemory::EngineMemory(TrainState& train, StepAgreement& agreement, Updates& updates)
    : train_(train) {
  Ledger& ledger = train.runtime.ledger();
  baseline_bytes_ = proportional_set_size();
  ledger.restart_peaks();
  train.arrays.plan(ledger);
  train.buffers.plan(ledger);
  if (train.offload) train.offload->plan(ledger);
  agreement.plan(ledger);
  updates.plan(ledger);
  const std::int64_t exchanged = train.arrays.exchanged_bytes() + agreement.exchanged_bytes();
  with_memory_table(ledger, [&] {
    reserve_exchanged(exchanged);
    arena_ = train.runtime.device().reserve(
        train.arrays.resting_bytes() + (exchanged_.size() > 0 ? 0 : exchanged),
        train.collective() ? Arena::Sharing::node : Arena::Sharing::private_memory, "zero engine");
  });
  train.arrays.allocate(shared_arena(), arena_, ledger);
  agreement.allocate(shared_arena(), ledger);
  agreement.set_scaler(train.scaler.state());
  updates.allocate(ledger);
  with_memory_table(ledger, [&] {
    train.buffers.allocate(ledger);
    if (train.offload) train.offload->open(ledger);
  });
}

// The transport may round the bytes up, which comes into the plan.
void EngineMemory::reserve_exchanged(std::int64_t bytes) {
  if (!train_.collective()) return;
  Ledger& ledger = train_.runtime.ledger();
  train_.ranks.exchange_on_device("start-up", [&](comm::Communicator& communicator, Stream) {
    try {
      exchanged_ = communicator.reserve(bytes);
      if (exchanged_.size() == 0) return;
      ledger.plan(MemoryCategory::communication, exchanged_.size() - bytes);
      ledger.take(MemoryCategory::communication, exchanged_.size() - bytes);
    } catch (const Error& error) {
      if (train_.runtime.topology().local_rank == 0)
        warn_once(std::string(communicator.transport()) + " has no memory for us (" + error.what() +
                  "); its buffers are the device's, which may cost it copies");
    }
  });
}

EngineMemory::~EngineMemory() {
  Ledger& ledger = train_.runtime.ledger();
  ledger.give_back(MemoryCategory::communication, exchanged_.size() - exchanged_.taken());
}

}  // namespace zero::detail
