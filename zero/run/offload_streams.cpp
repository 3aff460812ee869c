#include "zero/run/offload_streams.h"

#include <utility>

#include "zero/run/device_range.h"

namespace zero::detail {

OffloadStreams::OffloadStreams(TrainState& train, StepAgreement& agreement)
    : train_(train), agreement_(agreement) {
  const auto worker = [&](bool needed, const char* thread_name) {
    return needed ? train.runtime.create_stream(thread_name) : create_inline_stream();
  };
  const auto copies = [&] {
    return train.host_tier ? train.runtime.device().create_stream(Device::Role::copies)
                           : create_inline_stream();
  };
  streams_[PlanStream::inbound] = worker(train.file_tier != nullptr, "zero-inbound");
  streams_[PlanStream::outbound] = worker(train.file_tier != nullptr, "zero-outbound");
  streams_[PlanStream::copies_in] = copies();
  streams_[PlanStream::copies_out] = copies();
  streams_[PlanStream::host] = worker(train.host_tier != nullptr, "zero-host");
}

const std::string& OffloadStreams::unit_of(const Instruction& instruction) const {
  return train_.layout().flat_unit(flat_unit_of(instruction, train_.plan.inputs.chunks)).name;
}

void OffloadStreams::enqueue(const Instruction& instruction, std::function<void()> work) {
  streams_[instruction.stream]->enqueue(
      [this, op = instruction.op, unit = unit_of(instruction), work = std::move(work)](Stream) {
        const DeviceRange range(train_.runtime, op, unit);
        maybe_delay();
        try {
          work();
        } catch (const std::exception& error) {
          const auto* known = dynamic_cast<const Error*>(&error);
          if (!train_.runtime.device().is_host())
            agreement_.note_failure(known ? known->exit_code() : Error::code);
          throw;
        }
      });
}

// Between the file and memory. The micro step may have gone on when the work runs.
std::function<void()> OffloadStreams::work_of(const Instruction& instruction) const {
  FileTier* tier = train_.file_tier.get();
  const int target = instruction.target;
  const bool first = train_.replaces_gradients(), last = train_.last_micro_step;
  switch (instruction.op) {
    case Op::fetch:
      return [=] { tier->fetch(target); };
    case Op::load:
      return [=] { tier->load(target); };
    case Op::recall:
      return [=] { tier->recall(target); };
    case Op::store:
      return [=] { tier->store(target); };
    default:
      return [=] { tier->spill(target, first, last); };
  }
}

// Between a GPU and host memory.
void OffloadStreams::issue_copy(const Instruction& instruction) {
  const DeviceRange range(train_.runtime, instruction.op, unit_of(instruction));
  streams_[instruction.stream]->enqueue(
      [this, op = instruction.op, target = instruction.target](Stream stream) {
        HostTier& tier = *train_.host_tier;
        if (op == Op::download)
          tier.download(target,
                        train_.policy().measures_shards() ? &agreement_.own_vote()->norm
                                                          : &agreement_.own_vote()->uncounted,
                        stream);
        else if (op == Op::supply)
          tier.supply(target, stream);
        else if (op == Op::load)
          tier.load(target, stream);
        else if (op == Op::store)
          tier.store(target, stream);
        else
          tier.upload(target, stream);
      });
}

void OffloadStreams::issue(const Instruction& instruction) {
  const PlanStream stream = instruction.stream;
  if (stream == PlanStream::inbound || stream == PlanStream::outbound)
    enqueue(instruction, work_of(instruction));
  else
    issue_copy(instruction);
}

void OffloadStreams::issue_on_host(const Instruction& instruction, std::function<void()> work) {
  const DeviceRange range(train_.runtime, instruction.op, unit_of(instruction));
  enqueue(instruction, std::move(work));
}

void OffloadStreams::fetch_shard(int flat_unit) {
  if (train_.plan.inputs.offload.shard_slot(flat_unit) < 0) return;
  if (train_.plan.inputs.offload.fetches(flat_unit)) {
    issue({Op::fetch, flat_unit, {}, {}});
    streams_[PlanStream::inbound]->synchronize();
  }
  if (!train_.host_tier) return;
  issue({Op::supply, flat_unit, {}, {}});
  streams_[PlanStream::copies_in]->synchronize();
}

void OffloadStreams::finish() {
  for (const auto& stream : streams_)
    if (stream) stream->synchronize();
}

void OffloadStreams::finish_quietly() noexcept {
  for (const auto& stream : streams_) try {
      if (stream) stream->synchronize();
    } catch (const std::exception&) {
      // The failure has been thrown where it happened; what ended with the engine needs no file.
    }
}

void OffloadStreams::check() {
  for (const auto& stream : streams_)
    if (stream) stream->check();
}

}  // namespace zero::detail
