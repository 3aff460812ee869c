#include "zero/pass/offload_streams.h"

#include <utility>
#include <vector>

#include "zero/pass/device_range.h"

namespace zero::detail {

OffloadStreams::OffloadStreams(TrainState& train, StepScalars& scalars)
    : train_(train), scalars_(scalars) {
  const auto worker = [&](bool needed, const char* thread_name) {
    return needed ? train.runtime.create_stream(thread_name) : create_inline_stream();
  };
  const auto of_device = [&](bool needed, Device::Role role) {
    return needed ? train.runtime.device().create_stream(role) : create_inline_stream();
  };
  streams_[PlanStream::inbound] = worker(train.offloads_to_file(), "zero-inbound");
  streams_[PlanStream::outbound] = worker(train.offloads_to_file(), "zero-outbound");
  streams_[PlanStream::copies_in] = of_device(train.offloads_to_host(), Device::Role::copies);
  streams_[PlanStream::copies_out] = of_device(train.offloads_to_host(), Device::Role::copies);
  streams_[PlanStream::updates] =
      of_device(train.plan.inputs.offload.streams, Device::Role::compute);
  streams_[PlanStream::host] = worker(train.offloads_to_host(), "zero-host");
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
            scalars_.note_failure(known ? known->exit_code() : Error::code);
          throw;
        }
      });
}

// Transfers between the file and memory may run after the micro step has continued.
void OffloadStreams::issue(const Instruction& instruction) {
  const PlanStream stream = instruction.stream;
  if (stream != PlanStream::inbound && stream != PlanStream::outbound)
    return issue_copy(instruction);
  OffloadTier* tier = train_.offload.get();
  const Op op = instruction.op;
  const int target = instruction.target;
  if (op != Op::spill || tier->to_host())
    return enqueue(instruction, [=] { tier->move(op, target); });
  // The gradient replaces the stored sum, or adds to it.
  const StepPosition at = train_.position(instruction);
  const bool replaces = at.first || !train_.plan.sync_each();
  enqueue(instruction, [=] { tier->spill(target, replaces, at.last); });
}

// Issues copies between a GPU and host memory.
void OffloadStreams::issue_copy(const Instruction& instruction) {
  const DeviceRange range(train_.runtime, instruction.op, unit_of(instruction));
  streams_[instruction.stream]->enqueue(
      [this, op = instruction.op, target = instruction.target](Stream stream) {
        if (op != Op::download) return train_.offload->move(op, target, stream);
        optim::StepVote& vote = *scalars_.own_vote();
        const bool measures = train_.policy().measures_shards();
        train_.offload->download(target, measures ? &vote.norm : &vote.uncounted, stream);
      });
}

void OffloadStreams::fetch_shard(int flat_unit) {
  if (train_.plan.inputs.offload.shard_slot(flat_unit) < 0) return;
  if (train_.plan.inputs.offload.fetches(flat_unit)) {
    issue({Op::fetch, flat_unit, {}, {}});
    streams_[PlanStream::inbound]->synchronize();
  }
  if (!train_.offloads_to_host()) return;
  issue({Op::supply, flat_unit, {}, {}});
  streams_[PlanStream::copies_in]->synchronize();
}

void OffloadStreams::load_again() {
  const PlanInputs& inputs = train_.plan.inputs;
  std::vector<char> used(inputs.offload.state_slots);
  for (int c = 0; c < std::ssize(inputs.chunks); ++c)
    if (inputs.offload.passes_slot(inputs.chunks[c]) &&
        std::exchange(used[inputs.chunks[c].slot], 1) == 0)
      issue(instruction_of(inputs, Op::load, c));
  finish();
}

void OffloadStreams::finish_quietly() noexcept {
  for (const auto& stream : streams_) try {
      if (stream) stream->synchronize();
    } catch (const std::exception&) {
      // The failure has been thrown at its origin; work that ended with the engine needs no file.
    }
}

}  // namespace zero::detail
