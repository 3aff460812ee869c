#include "zero/state/state.h"

#include <algorithm>

#include "comm/wire/exchange.h"
#include "offload/block_file.h"

namespace zero::detail {

namespace {

// Of a gather of encoded slices, over so many ranks.
std::int64_t gather_staging(const WireFormats& wire, const comm::wire::Cut& cut, int ranks) {
  if (wire.gather_hop == 0) return gather_staging_bytes(wire.gather_inside, cut, ranks);
  return std::max(gather_staging_bytes(wire.gather, cut, ranks / wire.gather_hop),
                  gather_staging_bytes(wire.gather_inside, cut, wire.gather_hop));
}

}  // namespace

ModelState::ModelState(const EnginePlan& plan)
    : layout_(plan.layout),
      policy_(plan.policy),
      offload_(plan.inputs.offload),
      updates_(plan.updates),
      buffers_(layout_),
      residues_(layout_, policy_) {
  for (const SegmentId& id : layout_.segments()) {
    set_dtypes(id);
    make_runs(id);
  }
  request_parameters(plan.parameter_memory);
  request_gradients(plan.gradient_memory);
  request_optimizer();
  request_update_staging(plan.matrices.staging(plan.matrices.member(policy_.rank)));
  request_exchange_staging();
  residues_.request(requests_);
}

void ModelState::set_dtypes(const SegmentId& id) {
  const Segment& segment = layout_.segment(id);
  const Precision& precision = policy_.precision;
  SegmentBuffers& own = buffers_[id];
  own.dtype = segment.dtype.value_or(precision.compute);
  own.sum = segment.dtype.value_or(precision.accumulation);
  own.master_dtype = precision.master_of(own.dtype);
  own.state_dtype = precision.state_of(own.dtype);
  own.adds_up = policy_.accumulate_locally;
  own.summand = own.adds_up ? own.sum : own.dtype;
  own.wire = layout_.grid.ranks > 1 ? segment.dtype.value_or(precision.wire) : own.summand;
  own.held = policy_.shard(segment);
  own.updated = policy_.updated(segment);
  own.resident = offload_.resident.empty() ? own.updated.count() : offload_.resident[id];
  own.states.assign(policy_.optimizer_states.size(), nullptr);
  own.state_counts.assign(policy_.optimizer_states.size(), 0);
}

template <class Each>
void ModelState::request_slots(MemoryCategory category, const SlotAssignment& slots,
                               const Each& each) {
  std::vector<int> pieces;
  for (int slot = 0; slot < slots.slots; ++slot) pieces.push_back(requests_.add(category));
  for (int f = 0; f < std::ssize(slots.slot_of); ++f) {
    if (slots.slot_of[f] < 0) continue;
    std::int64_t end = 0;
    const auto place = [&](std::byte*& pointer, std::int64_t bytes) {
      requests_.place(pieces[slots.slot_of[f]], end, bytes, pointer);
      end += bytes;
    };
    for (const SegmentId& id : layout_.segments_of(f)) each(id, place);
  }
}

// Buffers of offloaded shards come first in the arena, so that they start and end on pages, as
// O_DIRECT demands.
void ModelState::request_parameters(const SlotAssignment& slots) {
  request_slots(MemoryCategory::offload_buffers, {offload_.shard_slot_of, offload_.shard_slots},
                [&](const SegmentId& id, const auto& place) {
                  SegmentBuffers& own = buffers_[id];
                  place(own.shard, offload::aligned(own.held.count() * size_of(own.dtype)));
                });
  // What is gathered in a wire format differs from the shard that it was encoded from, which the
  // next update may have to read and checkpoints hold.
  for (const SegmentId& id : layout_.segments())
    if ((policy_.parameters_sharded || layout_.segment(id).encoded) &&
        offload_.shard_slot(id.flat_unit) < 0)
      requests_.add(MemoryCategory::parameters,
                    buffers_[id].held.count() * size_of(buffers_[id].dtype), buffers_[id].shard);
  for (const SegmentId& id : layout_.segments())
    if (policy_.second_copy_ranks > 0 &&
        layout_.flat_unit(id.flat_unit).residence != Residence::persistent)
      requests_.add(MemoryCategory::parameters,
                    policy_.second_copy(layout_.segment(id)).count() * size_of(buffers_[id].dtype),
                    buffers_[id].second_copy);
  request_slots(
      policy_.parameters_sharded ? MemoryCategory::parameter_slots : MemoryCategory::parameters,
      slots, [&](const SegmentId& id, const auto& place) {
        SegmentBuffers& own = buffers_[id];
        place(own.whole, layout_.segment(id).length * size_of(own.dtype));
      });
}

std::vector<std::span<std::byte>> ModelState::shard_buffers() const {
  std::vector<std::span<std::byte>> buffers(offload_.shard_slots);
  for (const SegmentId& id : layout_.segments())
    if (const int slot = offload_.shard_slot(id.flat_unit); slot >= 0 && id.segment == 0)
      buffers[slot] = {buffers_[id].shard, static_cast<std::size_t>(requests_.bytes_of(slot))};
  return buffers;
}

void ModelState::request_gradients(const SlotAssignment& slots) {
  for (const SegmentId& id : layout_.segments()) {
    const Segment& segment = layout_.segment(id);
    SegmentBuffers& own = buffers_[id];
    if (!segment.trainable) continue;
    if (policy_.accumulator == Accumulator::shard)
      requests_.add(MemoryCategory::gradients,
                    (offload_.gradients ? own.resident : own.held.count()) * size_of(own.sum),
                    own.gradient_shard);
    if (policy_.inner_ranks > 0)
      requests_.add(MemoryCategory::gradients,
                    segment.length / policy_.inner_ranks * size_of(own.sum), own.group_sums);
    if (policy_.accumulator == Accumulator::whole)
      requests_.add(MemoryCategory::gradients, segment.length * size_of(own.sum), own.accumulated);
  }
  request_slots(
      policy_.gradients_whole ? MemoryCategory::gradients : MemoryCategory::gradient_slots, slots,
      [&](const SegmentId& id, const auto& place) {
        const Segment& segment = layout_.segment(id);
        SegmentBuffers& own = buffers_[id];
        if (!segment.trainable) return;
        place(own.gradient_whole, segment.length * size_of(own.dtype));
        if (offload_.gradients && own.summand != own.wire)
          place(own.landing, own.held.count() * size_of(own.wire));
      });
}

void ModelState::request_optimizer() {
  for (const SegmentId& id : layout_.segments()) {
    SegmentBuffers& own = buffers_[id];
    if (!layout_.segment(id).trainable) continue;
    if (own.has_master())
      requests_.add(MemoryCategory::master_weights, own.resident * size_of(own.master_dtype),
                    own.master);
    for (int k = 0; k < std::ssize(own.states); ++k)
      requests_.add(MemoryCategory::optimizer_state,
                    std::min(own.state_counts[k], own.resident) * size_of(own.state_dtype),
                    own.states[k]);
  }
}

void ModelState::request_update_staging(const MatrixStaging& matrices) {
  constexpr MemoryCategory category = MemoryCategory::update_staging;
  requests_.add(category, policy_.norm_words * size_of(DType::int64), tensor_norms_);
  requests_.add(category, matrices.directions * size_of(DType::fp32), directions_);
  requests_.add(category, matrices.matrices * size_of(DType::fp32), matrices_);
  requests_.add(category, matrices.scratch * size_of(DType::fp32), matrix_scratch_);
}

void ModelState::request_exchange_staging() {
  const RankGrid& grid = layout_.grid;
  const WireFormats& wire = policy_.wire;
  std::int64_t cast_bytes = 0, group_bytes = 0, encoded_bytes = 0;
  for (const SegmentId& id : layout_.segments()) {
    const Segment& segment = layout_.segment(id);
    const SegmentBuffers& own = buffers_[id];
    const std::int64_t held = own.held.count();
    const auto encode = [&](std::int64_t bytes) { encoded_bytes = std::max(encoded_bytes, bytes); };
    if (segment.encoded) {
      const std::int64_t piece = std::min(policy_.gather_piece(grid.shard_ranks), held);
      encode(gather_staging(wire, {piece, held, own.dtype}, grid.shard_ranks));
    }
    if (!segment.trainable) continue;
    // The length of a piece of what lies in this dtype, which is cast where the wire has another.
    const auto cast_piece = [&](int parts, std::int64_t elements, DType from) {
      const std::int64_t piece = std::min(policy_.reduce_piece(parts), elements);
      if (from != own.wire) cast_bytes = std::max(cast_bytes, piece * parts * size_of(own.wire));
      return piece;
    };
    const auto reduce = [&](const comm::wire::Codec& codec, int parts, std::int64_t elements,
                            DType from) {
      const comm::wire::Cut cut{cast_piece(parts, elements, from), elements, own.wire};
      encode(comm::wire::reduce_staging_bytes(codec, cut, parts));
    };
    if (const int inner = policy_.inner_ranks; inner > 0) {
      reduce(wire.reduce_inside, inner, segment.slice, own.summand);
      reduce(wire.reduce, grid.ranks / inner, segment.slice, own.sum);
    } else if (const int first = wire.reduce_hop; first > 0) {
      const std::int64_t piece = cast_piece(grid.shard_ranks, held, own.summand);
      encode(comm::wire::two_hop_staging_bytes(wire.reduce_inside, wire.reduce,
                                               {piece, held, first * held, own.wire}, first,
                                               grid.shard_ranks / first));
    } else {
      reduce(wire.reduce_inside, grid.shard_ranks, held, own.summand);
    }
    if (grid.replicas() == 1) continue;
    reduce(wire.reduce, grid.replicas(), segment.slice, own.sum);
    if (!policy_.sums_groups_last && (policy_.adds_group_sums || !own.sum_holds_wire()))
      group_bytes = std::max(group_bytes, held * size_of(own.wire));
  }
  const auto add = [&](std::int64_t bytes, std::byte*& staging) {
    if (bytes > 0) requests_.add(MemoryCategory::communication, bytes, staging);
  };
  add(cast_bytes, staging_);
  add(group_bytes, group_sums_);
  add(encoded_bytes, wire_staging_);
}

void ModelState::allocate(Arena& arena, Ledger& ledger) {
  requests_.take(arena, ledger);
  derive_pointers();
}

// Shards that are a part of a whole array, and masters that are the parameter itself.
void ModelState::derive_pointers() {
  for (const SegmentId& id : layout_.segments()) {
    const Segment& segment = layout_.segment(id);
    SegmentBuffers& own = buffers_[id];
    const std::int64_t first = own.held.begin;
    if (own.shard == nullptr) own.shard = own.whole + first * size_of(own.dtype);
    if (!segment.trainable) continue;
    if (offload_.gradients && own.landing == nullptr)
      own.landing = own.gradient_whole + first * size_of(own.dtype);
    if (own.gradient_shard == nullptr)
      own.gradient_shard = own.sum_whole() + first * size_of(own.sum);
    if (own.master == nullptr) {
      const std::int64_t skipped = policy_.optimizer_sharded() ? own.updated.begin - first : 0;
      own.master =
          (policy_.optimizer_sharded() ? own.shard : own.whole) + skipped * size_of(own.dtype);
    }
  }
}

void ModelState::add_run(SegmentBuffers& buffers, GroupRange run) const {
  run.state_begin.assign(policy_.optimizer_states.size(), -1);
  for (const int state : updates_.group(run.group).states) {
    run.state_begin[state] = buffers.state_counts[state];
    buffers.state_counts[state] += run.count();
  }
  buffers.runs.push_back(std::move(run));
}

// Padding goes with the parameter before it: zeros stay zeros under every rule.
void ModelState::make_runs(const SegmentId& id) {
  const Segment& segment = layout_.segment(id);
  SegmentBuffers& own = buffers_[id];
  if (!segment.trainable) return;
  GroupRange run{{own.updated.begin, own.updated.begin}, -1};
  for (std::size_t p = 0; p < segment.params.size(); ++p) {
    const int group = updates_.group_of_param()[segment.params[p].param];
    const bool last = p + 1 == segment.params.size();
    const Range with_padding = {segment.params[p].offset,
                                last ? segment.length : segment.params[p + 1].offset};
    const Range part = intersection(with_padding, {run.end, own.updated.end});
    if (part.empty()) continue;
    if (group != run.group && !run.empty()) add_run(own, run);
    if (group != run.group) run = {{run.end, run.end}, group};
    run.end = part.end;
  }
  if (!run.empty()) add_run(own, run);
}

bool ModelState::has_state(int param, int state) const {
  const int group = updates_.group_of_param()[param];
  return group >= 0 && std::ranges::count(updates_.group(group).states, state) > 0;
}

DType SegmentBuffers::dtype_of(ArrayKind kind) const {
  return EnumArray<ArrayKind, DType, array_kinds>{dtype, sum, master_dtype, state_dtype}[kind];
}

std::int64_t SegmentBuffers::state_position(int state, std::int64_t element) const {
  for (const GroupRange& run : runs)
    if (element < run.end && run.state_begin[state] >= 0)
      return run.state_begin[state] + std::max<std::int64_t>(0, element - run.begin);
  return state_counts[state];
}

}  // namespace zero::detail
