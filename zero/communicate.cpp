#include <algorithm>

#include "optim/gradient_norm.h"
#include "zero/engine_core.h"

namespace zero::detail {

namespace {

// Elements per rank of one collective, so that it moves at most `bucket` elements in all.
std::int64_t piece_elements(std::int64_t bucket, int ranks) {
  return std::max(alignment_elements, bucket / ranks / alignment_elements * alignment_elements);
}

}  // namespace

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
  runtime_.communicate(
      [this, flat_unit, work = std::move(work)](comm::Communicator& communicator, Stream stream) {
        communicator.set_subject(subjects_[static_cast<std::size_t>(flat_unit)]);
        traffic_ -= communicator.traffic();
        work({&communicator, stream});
        traffic_ += communicator.traffic();
      });
}

void EngineCore::fill_zero(std::byte* data, std::int64_t bytes) {
  if (bytes == 0) return;
  runtime_.compute().enqueue(
      [this, data, bytes](Stream stream) { runtime_.device().fill_zero(data, bytes, stream); });
}

void EngineCore::copy_and_wait(void* to, const void* from, std::int64_t bytes) {
  detail::copy_and_wait(runtime_, to, from, bytes);
}

void EngineCore::issue(const Instruction& instruction) {
  fold(instruction.op, instruction.target, flat(instruction.target).elements());
  if (instruction.op == Op::gather)
    gather(instruction.target);
  else
    reduce(instruction.target);
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
    for (std::size_t s = 0; s < flat(flat_unit).segments.size(); ++s) {
      const Segment& segment = flat(flat_unit).segments[s];
      if (!segment.trainable && !state_->policy().parameters_sharded) continue;
      const SegmentBuffers& buffers = state_->segment(flat_unit, static_cast<int>(s));
      all_gather_whole(wire, segment, buffers.shard, buffers.whole, buffers.dtype);
    }
  });
}

void EngineCore::reduce(int flat_unit) {
  const bool first = micro_step_ == 0 || !plan_.sync_each;
  const bool last = micro_step_ + 1 == accumulation();
  transfer(flat_unit, [this, flat_unit, first, last](const Wire& wire) {
    for (std::size_t s = 0; s < flat(flat_unit).segments.size(); ++s)
      if (flat(flat_unit).segments[s].trainable)
        reduce_segment(wire, flat_unit, static_cast<int>(s), first, last);
  });
}

// The sum lands in this rank's slice of the whole gradient; an accumulator beside it takes the
// first one as it is and adds the later ones.
void EngineCore::reduce_segment(const Wire& wire, int flat_unit, int segment_index, bool first,
                                bool last) {
  const Segment& segment = flat(flat_unit).segments[static_cast<std::size_t>(segment_index)];
  const SegmentBuffers& buffers = state_->segment(flat_unit, segment_index);
  const bool accumulates = buffers.has_separate_shard(segment, rank());
  std::byte* slice = buffers.gradient_whole + rank() * segment.shard * size_of(buffers.dtype);
  const std::int64_t piece = piece_elements(config_.zero_optimization.reduce_bucket_size, ranks());
  for (std::int64_t begin = 0; begin < segment.shard; begin += piece) {
    const std::int64_t count = std::min(piece, segment.shard - begin);
    const std::int64_t offset = begin * size_of(buffers.dtype);
    std::byte* sum = accumulates && first ? buffers.gradient_shard + offset : slice + offset;
    if (wire.communicator != nullptr)
      wire.communicator->reduce_scatter(buffers.gradient_whole + offset, sum, count, buffers.dtype,
                                        segment.shard, wire.stream);
    else if (sum != slice + offset)
      runtime_.device().copy(sum, slice + offset, count * size_of(buffers.dtype), wire.stream);
    if (accumulates && !first)
      optim::accumulate_gradient(buffers.gradient_shard + offset, sum, buffers.dtype, count);
  }
  // Every rank updates everything: it needs the whole sum.
  if (wire.communicator == nullptr || !last || state_->policy().optimizer_sharded) return;
  all_gather_whole(wire, segment, buffers.gradient_shard, buffers.gradient_whole, buffers.dtype);
}

}  // namespace zero::detail
