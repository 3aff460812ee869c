#include <algorithm>

#include "zero/base/notice.h"
#include "zero/run/engine_core.h"

namespace zero::detail {

void EngineCore::fold(Op op, int flat_unit, std::int64_t bytes) {
  for (const auto value : {static_cast<std::uint64_t>(op), static_cast<std::uint64_t>(flat_unit),
                           static_cast<std::uint64_t>(bytes)})
    collectives_hash_ = (collectives_hash_ ^ value) * 0x100000001b3u;
}

void EngineCore::transfer(int flat_unit, std::function<void(const Wire&)> work) {
  if (!collective()) {
    runtime_.communication().enqueue([work = std::move(work)](Stream stream) {
      maybe_delay();
      work({nullptr, stream});
    });
    return;
  }
  ranks_.communicate(
      [this, flat_unit, work = std::move(work)](comm::Communicator& communicator, Stream stream) {
        communicator.set_subject(subjects_[flat_unit]);
        communicator.use_staging(staging_.data(), staging_.size());
        traffic_ -= communicator.traffic();
        work({&communicator, stream});
        traffic_ += communicator.traffic();
      });
}

void EngineCore::reserve_exchanged(std::int64_t bytes) {
  if (!collective()) return;
  Ledger& ledger = runtime_.ledger();
  ranks_.exchange_on_device("start-up", [&](comm::Communicator& communicator, Stream) {
    try {
      exchanged_ = communicator.reserve(bytes);
      if (exchanged_.size() == 0) return;
      ledger.plan(MemoryCategory::communication, exchanged_.size() - bytes);
      ledger.take(MemoryCategory::communication, exchanged_.size() - bytes);
    } catch (const Error& error) {
      if (runtime_.topology().local_rank == 0)
        warn_once(std::string(communicator.transport()) + " has no memory for us (" + error.what() +
                  "); its buffers are the device's, which may cost it copies");
    }
  });
}

// Beside the buffers of the longest reduction, where the communicator needs that.
void EngineCore::reserve_staging() {
  std::int64_t bytes = 0;
  const std::int64_t piece = state_->policy().reduce_piece;
  ranks_.exchange_on_device("start-up", [&](comm::Communicator& communicator, Stream) {
    for (std::size_t f = 0; f < plan_.layout.flat_units.size(); ++f)
      for (std::size_t s = 0; s < plan_.layout.flat_units[f].segments.size(); ++s) {
        const Segment& segment = plan_.layout.flat_units[f].segments[s];
        const DType dtype = state_->segment(static_cast<int>(f), static_cast<int>(s)).wire;
        if (segment.trainable)
          bytes =
              std::max(bytes, communicator.staging_bytes(std::min(piece, segment.shard), dtype));
      }
  });
  if (bytes == 0) return;
  runtime_.ledger().plan(MemoryCategory::communication, Arena::rounded(bytes));
  staging_ = runtime_.device().reserve(bytes, Arena::Sharing::private_memory,
                                       "the staging of sums in rank order");
  runtime_.ledger().take(MemoryCategory::communication, staging_.size());
}

void EngineCore::fill_zero(std::byte* data, std::int64_t bytes) {
  if (bytes == 0) return;
  runtime_.compute().enqueue(
      [this, data, bytes](Stream stream) { runtime_.device().fill_zero(data, bytes, stream); });
}

void EngineCore::copy_and_wait(void* to, const void* from, std::int64_t bytes) {
  detail::copy_and_wait(runtime_, to, from, bytes);
}

// `micro_step_` may have gone on when the work runs.
void EngineCore::issue_on_file(const Instruction& instruction) {
  const int target = instruction.target;
  const bool first = micro_step_ == 0 || !plan_.sync_each;
  const bool last = micro_step_ + 1 == accumulation();
  const auto enqueue = [&, this](ExecutionStream& stream, std::function<void(FileTier&)> work) {
    stream.enqueue([this, named = Instruction{instruction.op, target, {}, {}},
                    work = std::move(work)](Stream) { run_offload(named, [&] { work(*tier_); }); });
  };
  switch (instruction.op) {
    case Op::fetch:
      return enqueue(*inbound_, [=](FileTier& tier) { tier.fetch(target); });
    case Op::load:
      return enqueue(*inbound_, [=](FileTier& tier) { tier.load(target); });
    case Op::recall:
      return enqueue(*inbound_, [=](FileTier& tier) { tier.recall(target); });
    case Op::store:
      return enqueue(*outbound_, [=](FileTier& tier) { tier.store(target); });
    default:
      return enqueue(*outbound_, [=](FileTier& tier) { tier.spill(target, first, last); });
  }
}

void EngineCore::run_offload(const Instruction& instruction, const std::function<void()>& work) {
  const std::uint64_t range = begin_range(instruction);
  maybe_delay();
  try {
    work();
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    if (device_step_)
      device_step_->note_failure(known ? known->exit_code() : Error("").exit_code());
    throw;
  }
  runtime_.device().end_range(range);
}

void EngineCore::fetch_and_wait(int flat_unit) {
  if (plan_.inputs.offload.fetches(flat_unit)) {
    issue({Op::fetch, flat_unit, {}, {}});
    inbound_->synchronize();
  }
  if (!host_tier_) return;
  issue({Op::supply, flat_unit, {}, {}});
  copies_in_->synchronize();
}

void EngineCore::issue(const Instruction& instruction) {
  const PlanStream stream = stream_of(instruction.op);
  if (stream == PlanStream::inbound || stream == PlanStream::outbound)
    return issue_on_file(instruction);
  if (stream != PlanStream::communication) return issue_beside_device(instruction);
  fold(instruction.op, instruction.target, flat(instruction.target).elements());
  const std::uint64_t range =
      device_step_ ? begin_range(instruction.op, flat(instruction.target).name) : 0;
  if (instruction.op == Op::gather)
    gather(instruction.target);
  else if (instruction.op == Op::accumulate)
    accumulate(instruction.target);
  else
    reduce(instruction.target);
  if (device_step_) runtime_.device().end_range(range);
}

void EngineCore::all_gather_whole(const Wire& wire, const Segment& segment, const std::byte* shard,
                                  std::byte* whole, DType dtype) const {
  const std::int64_t piece =
      piece_elements(config_.zero_optimization.allgather_bucket_size, ranks());
  for (std::int64_t begin = 0; begin < segment.shard; begin += piece) {
    const std::int64_t offset = begin * size_of(dtype);
    wire.communicator->all_gather(shard + offset, whole + offset,
                                  std::min(piece, segment.shard - begin), dtype, segment.shard,
                                  wire.stream);
  }
}

// Where the parameter rests whole, only what the update wrote is stale: the trainable segments.
void EngineCore::gather(int flat_unit) {
  transfer(flat_unit, [this, flat_unit](const Wire& wire) {
    if (hides_) show_parameters(flat_unit);
    for (std::size_t s = 0; s < flat(flat_unit).segments.size(); ++s) {
      const Segment& segment = flat(flat_unit).segments[s];
      if (!segment.trainable && !state_->policy().parameters_sharded) continue;
      const SegmentBuffers& buffers = state_->segment(flat_unit, static_cast<int>(s));
      if (wire.communicator != nullptr)
        all_gather_whole(wire, segment, buffers.shard, buffers.whole, buffers.dtype);
      else
        runtime_.device().copy(buffers.whole, buffers.shard,
                               segment.length * size_of(buffers.dtype), wire.stream);
    }
  });
}

// To this rank's own sum over micro steps.
void EngineCore::accumulate(int flat_unit) {
  transfer(flat_unit, [this, flat_unit, first = micro_step_ == 0](const Wire& wire) {
    add_up(flat_unit, first, wire.stream);
    hide_gradients(flat_unit);
  });
}

void EngineCore::add_up(int flat_unit, bool first, Stream stream) {
  for (std::size_t s = 0; s < flat(flat_unit).segments.size(); ++s) {
    const Segment& segment = flat(flat_unit).segments[s];
    if (!segment.trainable) continue;
    const SegmentBuffers& buffers = state_->segment(flat_unit, static_cast<int>(s));
    assign_or_add({buffers.accumulated, buffers.sum}, {buffers.gradient_whole, buffers.dtype},
                  segment.length, first, stream);
  }
}

void EngineCore::reduce(int flat_unit) {
  const bool first = micro_step_ == 0 || !plan_.sync_each;
  const bool last = micro_step_ + 1 == accumulation();
  transfer(flat_unit, [this, flat_unit, first, last](const Wire& wire) {
    if (state_->policy().accumulate_locally) add_up(flat_unit, false, wire.stream);
    for (std::size_t s = 0; s < flat(flat_unit).segments.size(); ++s)
      if (flat(flat_unit).segments[s].trainable)
        reduce_segment(wire, flat_unit, static_cast<int>(s), first, last);
    hide_gradients(flat_unit);
  });
}

// The sum over ranks lands in this rank's slice of the gradient at rest: it replaces what lies
// there, or is added to it. What rests in a file is spilled from where it lands.
void EngineCore::reduce_segment(const Wire& wire, int flat_unit, int segment_index, bool first,
                                bool last) {
  const Segment& segment = flat(flat_unit).segments[segment_index];
  const SegmentBuffers& buffers = state_->segment(flat_unit, segment_index);
  const bool to_file = buffers.landing != nullptr;
  if (wire.communicator == nullptr) {
    if (!to_file && buffers.summands() != buffers.gradient_shard)
      assign_or_add({buffers.gradient_shard, buffers.sum}, {buffers.summands(), buffers.summand},
                    segment.shard, first, wire.stream);
    return;
  }
  // Where every rank updates everything, it needs the whole sum.
  const bool spreads = last && !state_->policy().optimizer_sharded;
  // What is taken in once has the values of the wire, and travels on as such.
  const bool spreads_wire = spreads && first && buffers.sum != buffers.wire;
  const std::int64_t piece = state_->policy().reduce_piece;
  for (std::int64_t begin = 0; begin < segment.shard; begin += piece) {
    const std::int64_t count = std::min(piece, segment.shard - begin);
    const Outgoing outgoing = cast_for_wire(segment, buffers, begin, count, wire.stream);
    if (to_file) {
      wire.communicator->reduce_scatter(outgoing.data,
                                        buffers.landing + begin * size_of(buffers.wire), count,
                                        buffers.wire, outgoing.stride, wire.stream);
      continue;
    }
    std::byte* own = outgoing.data + rank() * outgoing.stride * size_of(buffers.wire);
    std::byte* target = buffers.gradient_shard + begin * size_of(buffers.sum);
    const bool direct = first && buffers.sum == buffers.wire;
    wire.communicator->reduce_scatter(outgoing.data, direct ? target : own, count, buffers.wire,
                                      outgoing.stride, wire.stream);
    if (!direct)
      assign_or_add({target, buffers.sum}, {own, buffers.wire}, count, first, wire.stream);
    if (!spreads_wire) continue;
    wire.communicator->all_gather(own, outgoing.data, count, buffers.wire, outgoing.stride,
                                  wire.stream);
    for (int r = 0; r < ranks(); ++r)
      cast({outgoing.data + r * outgoing.stride * size_of(buffers.wire), buffers.wire},
           {buffers.sum_whole() + (r * segment.shard + begin) * size_of(buffers.sum), buffers.sum},
           count, wire.stream);
  }
  if (spreads && !spreads_wire)
    all_gather_whole(wire, segment, buffers.gradient_shard, buffers.sum_whole(), buffers.sum);
}

// Every rank's part of a piece in the dtype of the wire: where it lies, or cast to the staging.
EngineCore::Outgoing EngineCore::cast_for_wire(const Segment& segment,
                                               const SegmentBuffers& buffers, std::int64_t begin,
                                               std::int64_t count, Stream stream) {
  std::byte* summands = buffers.summands() + begin * size_of(buffers.summand);
  Outgoing outgoing{summands, segment.shard};
  if (buffers.summand != buffers.wire) outgoing = {state_->staging(), count};
  for (int r = 0; r < ranks(); ++r) {
    std::byte* part = outgoing.data + r * outgoing.stride * size_of(buffers.wire);
    if (buffers.summand != buffers.wire)
      cast({summands + r * segment.shard * size_of(buffers.summand), buffers.summand},
           {part, buffers.wire}, count, stream);
    if (state_->policy().precision.predivision != 1)
      divide({part, buffers.wire}, count, state_->policy().precision.predivision, stream);
  }
  return outgoing;
}

}  // namespace zero::detail
