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
      table_(plan.arrays),
      arrays_(layout_),
      kept_(table_.pools[Pool::kept].rows.size()) {
  for (const SegmentId& id : layout_.segments()) describe(id);
  for (const ArrayPool& pool : table_.pools)
    if (&pool != &table_.pools[Pool::waiting_sums]) request(pool);
  request_update_staging(plan.updates.norm_words(),
                         plan.matrices.staging(plan.matrices.member(policy_.rank)));
  request_exchange_staging(plan.routes);
}

void ModelState::describe(const SegmentId& id) {
  const Segment& segment = layout_.segment(id);
  SegmentArrays& own = arrays_[id];
  static_cast<SegmentTypes&>(own) = policy_.types(segment);
  own.held = policy_.shard(segment);
  own.updated = policy_.updated(segment);
  own.updates_all = !policy_.optimizer_sharded();
  own.in_norm = policy_.measures(segment);
  own.resident = offload_.resident_of(id, own.updated);
  own.groups = &table_.updated[id];
  own.states.assign(own.groups->state_counts.size(), nullptr);
}

std::byte*& ModelState::address(const ArrayRow& row) {
  if (row.unit >= 0) return kept_[&row - table_.pools[Pool::kept].rows.data()];
  SegmentArrays& own = arrays_[row.id];
  return row.id.kind == ArrayKind::state ? own.states[row.id.number] : own[row.id.kind].data;
}

void ModelState::request(const ArrayPool& pool) {
  std::vector<int> pieces;
  for (int slot = 0; slot < pool.slots; ++slot) pieces.push_back(requests_.add(pool.category));
  for (const ArrayRow& row : pool.rows) {
    if (row.unit < 0 && row.id.kind != ArrayKind::state)
      arrays_[row.id][row.id.kind] = {nullptr, row.range.begin, row.encoding.dtype};
    if (row.within) continue;
    const bool in_pages = row.category == MemoryCategory::offload_buffers;
    if (row.slot < 0)
      requests_.add(row.category, row.bytes(), address(row));
    else
      requests_.place(pieces[row.slot], row.offset,
                      in_pages ? offload::aligned(row.bytes()) : row.bytes(), address(row));
  }
}

std::vector<std::span<std::byte>> ModelState::shard_buffers() const {
  std::vector<std::span<std::byte>> buffers(offload_.shard_slots);
  for (const SegmentId& id : layout_.segments())
    if (const int slot = offload_.shard_slot(id.flat_unit); slot >= 0 && id.segment == 0)
      buffers[slot] = {arrays_[id][ArrayKind::parameter_shard].data,
                       static_cast<std::size_t>(requests_.bytes_of(slot))};
  return buffers;
}

void ModelState::request_update_staging(std::int64_t norm_words, const MatrixStaging& matrices) {
  constexpr MemoryCategory category = MemoryCategory::update_staging;
  requests_.add(category, norm_words * size_of(DType::int64), tensor_norms_);
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
      if (sum.summands.group > 1 && !policy_.keeps_open_group())
        group_block = std::max(group_block, policy_.fold_block(piece) * size_of(DType::fp32));
    }
  }
  const auto add = [&](std::int64_t bytes, std::byte*& staging) {
    if (bytes > 0) requests_.add(MemoryCategory::communication, bytes, staging);
  };
  add(sent, staging_);
  request(table_.pools[Pool::waiting_sums]);
  add(encoded, wire_staging_);
  add(received, received_summands_);
  add(group_block, group_block_);
}

std::byte* ModelState::array(const SegmentId& id, const ArrayRef& ref) const {
  return arrays_[id][ref.kind].data + ref.offset * size_of(ref.dtype);
}

void ModelState::allocate(Arena& arena, Ledger& ledger) {
  requests_.take(arena, ledger);
  for (const ArrayPool& pool : table_.pools)
    for (const ArrayRow& row : pool.rows)
      if (row.within) address(row) = arrays_[row.id][*row.within].of(row.range.begin);
}

}  // namespace zero::detail
