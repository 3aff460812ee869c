#include "zero/state/state.h"

#include <algorithm>

#include "comm/wire/exchange.h"
#include "comm/wire/layout.h"
#include "offload/block_file.h"

namespace zero::detail {

namespace {

// Bytes of the encoded slices of a piece of a gather, or of a sum.
std::int64_t encoded_bytes(const Route& route, std::int64_t piece) {
  const Leg& first = route.legs.front();
  const bool gathers = route.kind == Route::Kind::gather;
  const comm::wire::Cut cut{piece, route.count, gathers ? route.from.dtype : route.wire};
  if (gathers) {
    std::int64_t most = 0;
    for (const Leg& leg : route.legs)
      most = std::max(most, comm::wire::gather_staging_bytes(leg.codec, cut, leg.ranks));
    return most;
  }
  if (route.legs.size() == 1)
    return comm::wire::reduce_staging_bytes(first.codec, cut, first.ranks);
  const Leg& second = route.legs.back();
  return comm::wire::two_hop_staging_bytes(first.codec, second.codec,
                                           {piece, cut.stride, first.ranks * cut.stride, cut.dtype},
                                           first.ranks, second.ranks);
}

}  // namespace

ModelState::ModelState(const EnginePlan& plan)
    : layout_(plan.layout),
      policy_(plan.policy),
      offload_(plan.inputs.offload),
      updates_(plan.updates),
      buffers_(layout_) {
  for (const SegmentId& id : layout_.segments()) {
    set_dtypes(id);
    make_group_ranges(id);
  }
  for (const PlannedArrays& planned : planned_arrays(plan)) request(planned);
  request_optimizer();
  request_update_staging(plan.matrices.staging(plan.matrices.member(policy_.rank)));
  request_exchange_staging(plan.routes);
}

void ModelState::set_dtypes(const SegmentId& id) {
  const Segment& segment = layout_.segment(id);
  SegmentBuffers& own = buffers_[id];
  static_cast<SegmentTypes&>(own) = policy_.types(segment);
  own.held = policy_.shard(segment);
  own.updated = policy_.updated(segment);
  own.updates_all = !policy_.optimizer_sharded();
  own.in_norm = policy_.measures(segment);
  own.resident = offload_.resident_of(id, own.updated);
  own.states.assign(policy_.optimizer_states.size(), nullptr);
  own.state_counts.assign(policy_.optimizer_states.size(), 0);
}

void ModelState::request(const PlannedArrays& planned) {
  // O_DIRECT requires whole pages.
  const bool in_pages = planned.category == MemoryCategory::offload_buffers;
  std::vector<int> pieces;
  for (int slot = 0; slot < planned.slots; ++slot)
    pieces.push_back(requests_.add(planned.category));
  std::int64_t end = 0;
  int flat_unit = -1;
  for (const PlannedArray& array : planned.arrays) {
    std::byte*& pointer = buffers_[array.id].pointer(array.role);
    if (array.slot < 0) {
      requests_.add(planned.category, array.bytes, pointer);
      continue;
    }
    if (array.id.flat_unit != flat_unit) end = 0;
    flat_unit = array.id.flat_unit;
    const std::int64_t bytes = in_pages ? offload::aligned(array.bytes) : array.bytes;
    requests_.place(pieces[array.slot], end, bytes, pointer);
    end += bytes;
  }
}

std::vector<std::span<std::byte>> ModelState::shard_buffers() const {
  std::vector<std::span<std::byte>> buffers(offload_.shard_slots);
  for (const SegmentId& id : layout_.segments())
    if (const int slot = offload_.shard_slot(id.flat_unit); slot >= 0 && id.segment == 0)
      buffers[slot] = {buffers_[id].shard, static_cast<std::size_t>(requests_.bytes_of(slot))};
  return buffers;
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

std::int64_t ModelState::sent_bytes(const Route& sum, std::int64_t piece) const {
  const bool moves = sum.from.dtype != sum.wire || sum.packs(piece);
  const int parts = moves ? sum.parts() : sum.folds_twice() ? sum.legs.back().ranks : 0;
  return parts * piece * size_of(sum.wire);
}

void ModelState::request_exchange_staging(const Routes& routes) {
  std::int64_t sent = 0, encoded = 0, received = 0, group_block = 0;
  for (const SegmentId& id : layout_.segments()) {
    if (const Route gather = routes.gather(id); layout_.segment(id).encoded && gather.parts() > 1)
      encoded = std::max(
          encoded,
          encoded_bytes(gather, std::min(policy_.gather_piece(gather.parts()), gather.count)));
    if (!layout_.segment(id).trainable) continue;
    for (const Route& sum : routes.sums(id)) {
      const std::int64_t piece = std::min(policy_.reduce_piece(sum.parts()), sum.count);
      sent = std::max(sent, sent_bytes(sum, piece));
      if (sum.kind != Route::Kind::fold) {
        encoded = std::max(encoded, encoded_bytes(sum, piece));
        continue;
      }
      if (sum.parts() > 1) received = std::max(received, piece * sum.parts() * size_of(sum.wire));
      if (sum.summands.group > 1 && !policy_.keeps_open_group)
        group_block = std::max(group_block, policy_.fold_block(piece) * size_of(DType::fp32));
    }
  }
  const auto add = [&](std::int64_t bytes, std::byte*& staging) {
    if (bytes > 0) requests_.add(MemoryCategory::communication, bytes, staging);
  };
  add(sent, staging_);
  request_group_sums(routes);
  add(encoded, wire_staging_);
  add(received, received_summands_);
  add(group_block, group_block_);
}

// All segments of a unit are reduced inside the group before any is summed over the groups.
void ModelState::request_group_sums(const Routes& routes) {
  const int piece = requests_.add(MemoryCategory::communication);
  for (int flat_unit = 0; flat_unit < std::ssize(layout_.flat_units); ++flat_unit) {
    std::int64_t end = 0;
    for (const SegmentId& id : layout_.trainable_of(flat_unit)) {
      const std::int64_t bytes = routes.waiting_elements(id) * size_of(buffers_[id].wire);
      requests_.place(piece, end, bytes, buffers_[id].group_sum);
      end += bytes;
    }
  }
}

std::byte*& SegmentBuffers::pointer(Role role) {
  switch (role) {
    case Role::parameter:
      return whole;
    case Role::parameter_shard:
      return shard;
    case Role::second_copy:
      return second_copy;
    case Role::gradient:
      return gradient_whole;
    case Role::accumulated:
      return accumulated;
    case Role::gradient_shard:
      return gradient_shard;
    case Role::landing:
      return landing;
    case Role::group_sum:
      return group_sum;
    case Role::open_group:
      return open_group;
    case Role::group_sums:
      break;
  }
  return group_sums;
}

std::byte* ModelState::array(const SegmentId& id, const ArrayRef& ref) const {
  return buffers_[id].pointer(ref.role) + ref.offset * size_of(ref.dtype);
}

void ModelState::allocate(Arena& arena, Ledger& ledger) {
  requests_.take(arena, ledger);
  derive_pointers();
}

// Sets pointers of shards that are a part of a whole array, and of masters that are the parameter
// itself.
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
      own.master = own.updates_all ? own.whole
                                   : own.shard + (own.updated.begin - first) * size_of(own.dtype);
    }
  }
}

void ModelState::add_group_range(SegmentBuffers& buffers, GroupRange run) const {
  run.state_begin.assign(policy_.optimizer_states.size(), -1);
  for (const int state : updates_.group(run.group).states) {
    run.state_begin[state] = buffers.state_counts[state];
    buffers.state_counts[state] += run.count();
  }
  buffers.runs.push_back(std::move(run));
}

// Padding belongs to the preceding parameter: zeros stay zeros under every rule.
void ModelState::make_group_ranges(const SegmentId& id) {
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
    if (group != run.group && !run.empty()) add_group_range(own, run);
    if (group != run.group) run = {{run.end, run.end}, group};
    run.end = part.end;
  }
  if (!run.empty()) add_group_range(own, run);
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
