#include "zero/state/state.h"

#include <algorithm>

#include "comm/wire/exchange.h"
#include "offload/block_file.h"

namespace zero::detail {

namespace {

// Bytes of the encoded slices of one piece of a gather, or of a sum.
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
      buffers_(layout_),
      residues_(plan.routes, policy_) {
  for (const SegmentId& id : layout_.segments()) {
    set_dtypes(id);
    make_group_ranges(id);
  }
  request_parameters(plan.parameter_memory);
  request_gradients(plan.gradient_memory, plan.routes);
  request_optimizer();
  request_update_staging(plan.matrices.staging(plan.matrices.member(policy_.rank)));
  request_exchange_staging(plan.routes);
  residues_.request(requests_);
}

void ModelState::set_dtypes(const SegmentId& id) {
  const Segment& segment = layout_.segment(id);
  SegmentBuffers& own = buffers_[id];
  static_cast<SegmentTypes&>(own) = policy_.types(segment);
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
// O_DIRECT requires.
void ModelState::request_parameters(const SlotAssignment& slots) {
  request_slots(MemoryCategory::offload_buffers, {offload_.shard_slot_of, offload_.shard_slots},
                [&](const SegmentId& id, const auto& place) {
                  SegmentBuffers& own = buffers_[id];
                  place(own.shard, offload::aligned(own.held.count() * size_of(own.dtype)));
                });
  // Parameters gathered in a wire format differ from their shards, so these have memory of their
  // own: the next update may have to read them, and checkpoints contain them.
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

void ModelState::request_gradients(const SlotAssignment& slots, const Routes& routes) {
  for (const SegmentId& id : layout_.segments()) {
    const Segment& segment = layout_.segment(id);
    SegmentBuffers& own = buffers_[id];
    if (!segment.trainable) continue;
    if (policy_.accumulator == Accumulator::shard)
      requests_.add(MemoryCategory::gradients,
                    (offload_.gradients ? own.resident : own.held.count()) * size_of(own.sum),
                    own.gradient_shard);
    if (const std::int64_t elements = routes.group_sums_elements(id); elements > 0)
      requests_.add(MemoryCategory::gradients, elements * size_of(own.sum), own.group_sums);
    if (policy_.keeps_open_group)
      requests_.add(MemoryCategory::gradients, own.held.count() * size_of(DType::fp32),
                    own.open_group);
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
  add(place_group_sums(routes), group_sums_);
  add(encoded, wire_staging_);
  add(received, received_summands_);
  add(group_block, group_block_);
}

// All segments of a unit are reduced inside the group before any of them is summed over the groups.
std::int64_t ModelState::place_group_sums(const Routes& routes) {
  std::int64_t most = 0;
  for (int flat_unit = 0; flat_unit < std::ssize(layout_.flat_units); ++flat_unit) {
    std::int64_t bytes = 0;
    for (const SegmentId& id : layout_.trainable_of(flat_unit)) {
      buffers_[id].group_sum_at = bytes;
      bytes += routes.waiting_elements(id) * size_of(buffers_[id].wire);
    }
    most = std::max(most, bytes);
  }
  return most;
}

std::byte* ModelState::array(const SegmentId& id, const ArrayRef& ref) const {
  const SegmentBuffers& own = buffers_[id];
  std::byte* first = nullptr;
  switch (ref.role) {
    case Role::parameter:
      first = own.whole;
      break;
    case Role::parameter_shard:
      first = own.shard;
      break;
    case Role::second_copy:
      first = own.second_copy;
      break;
    case Role::gradient:
      first = own.gradient_whole;
      break;
    case Role::accumulated:
      first = own.accumulated;
      break;
    case Role::gradient_shard:
      first = own.gradient_shard;
      break;
    case Role::landing:
      first = own.landing;
      break;
    case Role::group_sum:
      first = group_sums_ + own.group_sum_at;
      break;
    case Role::group_sums:
      first = own.group_sums;
      break;
    case Role::open_group:
      first = own.open_group;
      break;
  }
  return first + ref.offset * size_of(ref.dtype);
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
      const std::int64_t skipped = policy_.optimizer_sharded() ? own.updated.begin - first : 0;
      own.master =
          (policy_.optimizer_sharded() ? own.shard : own.whole) + skipped * size_of(own.dtype);
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

// Padding belongs to the parameter before it: zeros stay zeros under every rule.
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
