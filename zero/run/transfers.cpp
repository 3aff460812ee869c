#include "zero/run/transfers.h"

#include <algorithm>

#include "zero/run/device_range.h"
#include "zero/state/array_exchange.h"

namespace zero::detail {

Transfers::Transfers(TrainState& train, HiddenMemory& hidden)
    : train_(train), hidden_(hidden), ops_(train.runtime) {}

void Transfers::count_as_issued(Op op, int flat_unit, std::int64_t elements) {
  for (const auto value : {static_cast<std::uint64_t>(op), static_cast<std::uint64_t>(flat_unit),
                           static_cast<std::uint64_t>(elements)})
    issued_hash_ = (issued_hash_ ^ value) * 0x100000001b3u;
}

void Transfers::transfer(int flat_unit, Work work) {
  if (!train_.collective()) {
    train_.runtime.communication().enqueue([work = std::move(work)](Stream stream) {
      maybe_delay();
      work(nullptr, stream);
    });
    return;
  }
  train_.ranks.communicate(
      [this, flat_unit, work = std::move(work)](comm::Communicator& communicator, Stream stream) {
        communicator.set_subject(train_.subject(flat_unit));
        communicator.use_staging(staging_.data(), staging_.size());
        traffic_ -= communicator.traffic();
        work(&communicator, stream);
        traffic_ += communicator.traffic();
      });
}

void Transfers::queue_for_update(int flat_unit, Ranks::Transfer operation) {
  count_as_issued(Op::update, flat_unit, 0);
  transfer(flat_unit,
           [operation = std::move(operation)](comm::Communicator* communicator, Stream stream) {
             operation(*communicator, stream);
           });
}

void Transfers::reserve_staging() {
  std::int64_t bytes = 0;
  const std::int64_t piece = train_.policy().reduce_piece;
  train_.ranks.exchange_on_device("start-up", [&](comm::Communicator& communicator, Stream) {
    for (const SegmentId& id : train_.layout().segments())
      if (const Segment& segment = train_.layout().segment(id); segment.trainable)
        bytes = std::max(bytes, communicator.staging_bytes(std::min(piece, segment.shard),
                                                           train_.arrays.segment(id).wire));
  });
  if (bytes == 0) return;
  Ledger& ledger = train_.runtime.ledger();
  ledger.plan(MemoryCategory::communication, Arena::rounded(bytes));
  staging_ = train_.runtime.device().reserve(bytes, Arena::Sharing::private_memory,
                                             "the staging of sums in rank order");
  ledger.take(MemoryCategory::communication, staging_.size());
}

void Transfers::give_back_staging() {
  train_.runtime.ledger().give_back(MemoryCategory::communication, staging_.size());
  train_.runtime.ledger().plan(MemoryCategory::communication, -staging_.size());
}

void Transfers::issue(const Instruction& instruction) {
  const FlatUnit& flat = train_.layout().flat_unit(instruction.target);
  count_as_issued(instruction.op, instruction.target, flat.elements());
  const DeviceRange range(train_.runtime, instruction.op, flat.name);
  if (instruction.op == Op::gather)
    gather(instruction.target);
  else if (instruction.op == Op::accumulate)
    accumulate(instruction.target);
  else if (instruction.op == Op::reduce_late)
    reduce_late(instruction.target);
  else
    reduce(instruction.target, train_.policy().accumulate_locally);
}

void Transfers::gather(int flat_unit) {
  transfer(flat_unit, [this, flat_unit](comm::Communicator* communicator, Stream stream) {
    hidden_.show_parameters(flat_unit);
    for (const SegmentId id : train_.layout().segments_of(flat_unit)) {
      const Segment& segment = train_.layout().segment(id);
      if (!segment.trainable && !train_.policy().parameters_sharded) continue;
      const SegmentBuffers& buffers = train_.arrays.segment(id);
      if (communicator != nullptr)
        all_gather(train_, *communicator, stream, segment, buffers.shard, buffers.whole,
                   buffers.dtype);
      else
        train_.runtime.device().copy(buffers.whole, buffers.shard,
                                     segment.length * size_of(buffers.dtype), stream);
    }
  });
}

// To this rank's own sum over micro steps.
void Transfers::accumulate(int flat_unit) {
  const bool first = train_.micro_step == 0;
  transfer(flat_unit, [this, flat_unit, first](comm::Communicator*, Stream stream) {
    add_up(flat_unit, first, stream);
    hidden_.hide_gradients(flat_unit);
  });
}

void Transfers::add_up(int flat_unit, bool first, Stream stream) {
  for (const SegmentId id : train_.layout().segments_of(flat_unit)) {
    const Segment& segment = train_.layout().segment(id);
    if (!segment.trainable) continue;
    const SegmentBuffers& buffers = train_.arrays.segment(id);
    ops_.assign_or_add({buffers.accumulated, buffers.sum}, {buffers.gradient_whole, buffers.dtype},
                       segment.length, first, stream);
  }
}

// The micro step may have gone on when the work runs.
void Transfers::reduce(int flat_unit, bool adds_up) {
  const bool first = train_.replaces_gradients(), last = train_.last_micro_step;
  transfer(flat_unit, [this, flat_unit, first, last, adds_up](comm::Communicator* communicator,
                                                              Stream stream) {
    if (adds_up) add_up(flat_unit, false, stream);
    for (const SegmentId id : train_.layout().segments_of(flat_unit)) {
      const Segment& segment = train_.layout().segment(id);
      const SegmentBuffers& buffers = train_.arrays.segment(id);
      if (!segment.trainable) continue;
      if (communicator != nullptr)
        reduce_segment(*communicator, stream, id, first, last);
      else if (buffers.landing == nullptr && buffers.summands() != buffers.gradient_shard)
        ops_.assign_or_add({buffers.gradient_shard, buffers.sum},
                           {buffers.summands(), buffers.summand}, segment.shard, first, stream);
    }
    hidden_.hide_gradients(flat_unit);
  });
}

// Each micro step has reduced its gradients, or added them to this rank's sum.
void Transfers::reduce_late(int flat_unit) {
  if (!train_.plan.sync_each) return reduce(flat_unit, false);
  for (const SegmentId id : train_.layout().segments_of(flat_unit))
    if (train_.layout().segment(id).trainable) spread_gradients(id);
}

// The sum over ranks lands in this rank's slice of the gradient at rest: it replaces what lies
// there, or is added to it. What rests in a file is spilled from where it lands.
void Transfers::reduce_segment(comm::Communicator& communicator, Stream stream, const SegmentId& id,
                               bool first, bool last) {
  const Segment& segment = train_.layout().segment(id);
  const SegmentBuffers& buffers = train_.arrays.segment(id);
  // Where every rank updates everything, it needs the whole sum.
  const bool spreads = last && !train_.policy().optimizer_sharded;
  // A sum that is replaced has the values of the wire, and travels on as such.
  const bool spreads_wire = spreads && first && buffers.sum != buffers.wire;
  const std::int64_t piece = train_.policy().reduce_piece;
  for (std::int64_t begin = 0; begin < segment.shard; begin += piece) {
    const std::int64_t count = std::min(piece, segment.shard - begin);
    const Outgoing outgoing = cast_for_wire(segment, buffers, begin, count, stream);
    const auto reduce_to = [&](std::byte* target) {
      communicator.reduce_scatter(outgoing.data, target, count, buffers.wire, outgoing.stride,
                                  stream);
    };
    if (buffers.landing != nullptr) {
      reduce_to(buffers.landing + begin * size_of(buffers.wire));
      continue;
    }
    std::byte* own = outgoing.data + train_.rank() * outgoing.stride * size_of(buffers.wire);
    std::byte* target = buffers.gradient_shard + begin * size_of(buffers.sum);
    const bool direct = first && buffers.sum == buffers.wire;
    reduce_to(direct ? target : own);
    if (!direct)
      ops_.assign_or_add({target, buffers.sum}, {own, buffers.wire}, count, first, stream);
    if (!spreads_wire) continue;
    communicator.all_gather(own, outgoing.data, count, buffers.wire, outgoing.stride, stream);
    for (int r = 0; r < train_.rank_count(); ++r)
      ops_.cast(
          {outgoing.data + r * outgoing.stride * size_of(buffers.wire), buffers.wire},
          {buffers.sum_whole() + (r * segment.shard + begin) * size_of(buffers.sum), buffers.sum},
          count, stream);
  }
  if (spreads && !spreads_wire)
    all_gather(train_, communicator, stream, segment, buffers.gradient_shard, buffers.sum_whole(),
               buffers.sum);
}

// Every rank's part of a piece in the dtype of the wire: where it lies, or cast to the staging.
Transfers::Outgoing Transfers::cast_for_wire(const Segment& segment, const SegmentBuffers& buffers,
                                             std::int64_t begin, std::int64_t count,
                                             Stream stream) {
  std::byte* summands = buffers.summands() + begin * size_of(buffers.summand);
  Outgoing outgoing{summands, segment.shard};
  if (buffers.summand != buffers.wire) outgoing = {train_.arrays.staging(), count};
  const float predivision = train_.policy().precision.predivision;
  for (int r = 0; r < train_.rank_count(); ++r) {
    std::byte* part = outgoing.data + r * outgoing.stride * size_of(buffers.wire);
    if (buffers.summand != buffers.wire)
      ops_.cast({summands + r * segment.shard * size_of(buffers.summand), buffers.summand},
                {part, buffers.wire}, count, stream);
    if (predivision != 1) ops_.divide({part, buffers.wire}, count, predivision, stream);
  }
  return outgoing;
}

void Transfers::spread_gradients(const SegmentId& id) {
  if (!train_.collective() || train_.policy().optimizer_sharded) return;
  transfer(id.flat_unit, [this, id](comm::Communicator* communicator, Stream stream) {
    const SegmentBuffers& buffers = train_.arrays.segment(id);
    all_gather(train_, *communicator, stream, train_.layout().segment(id), buffers.gradient_shard,
               buffers.sum_whole(), buffers.sum);
  });
}

}  // namespace zero::detail
