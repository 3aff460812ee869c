#include "zero/state/offload_arrays.h"

#include <stdexcept>
#include <utility>

#include "offload/block_file.h"

namespace zero::detail {

std::int64_t slot_bytes_of(const OffloadPlan& offload, const OffloadArray& array) {
  return offload.in_file ? offload::aligned(array.bytes()) : Arena::rounded(array.bytes());
}

std::vector<OffloadArray> arrays_of_chunk(const PlanInputs& inputs, const ModelState& state,
                                          const Chunk& chunk) {
  const OffloadPlan& offload = inputs.offload;
  const SegmentBuffers& own = state.segment(chunk);
  std::vector<OffloadArray> arrays;
  std::int64_t slot_bytes = 0;
  const auto add = [&](ArrayKind kind, Tier home, bool in_slot, int number = 0) {
    OffloadArray& array = arrays.emplace_back(OffloadArray{.id = {chunk, kind, number},
                                                           .range = own.range_of(chunk),
                                                           .dtype = own.dtype_of(kind),
                                                           .home = home,
                                                           .slot = chunk.slot});
    if (in_slot)
      array.slot_offset = std::exchange(slot_bytes, slot_bytes + slot_bytes_of(offload, array));
  };
  const Tier home = chunk.state_in_file               ? Tier::file
                    : chunk.on_host || chunk.streamed ? Tier::host
                                                      : Tier::memory;
  if (offload.recalls(chunk))
    add(ArrayKind::gradient, Tier::file, true);
  else if (chunk.on_host)
    add(ArrayKind::gradient, Tier::host, false);
  if (offload.fetches(chunk.flat_unit))
    add(ArrayKind::parameter, Tier::file, true);
  else if (offload.shard_slot(chunk.flat_unit) >= 0 && home != Tier::memory)
    add(ArrayKind::parameter, Tier::host, chunk.streamed);
  else if (offload.uploads(chunk))
    // A parameter without master weights counts as optimizer state, so the file holds a copy.
    add(ArrayKind::parameter, chunk.state_in_file && !own.has_master() ? Tier::file : Tier::memory,
        true);
  if (home == Tier::memory) return arrays;
  // State kept in the file, or updated by a GPU, has a place in the slot.
  const bool in_slot = !chunk.on_host || home == Tier::file;
  if (own.has_master())
    add(ArrayKind::master, home, in_slot);
  else if (offload.uploads(chunk) && home == Tier::host)
    add(ArrayKind::master, home, false);
  for (int k = 0; k < std::ssize(own.states); ++k) add(ArrayKind::state, home, in_slot, k);
  return arrays;
}

OffloadMove move_of(Op op) {
  static constexpr std::pair<Op, OffloadMove> moves_of_ops[] = {
      {Op::fetch, {Location::home, Location::buffer}},
      {Op::supply, {Location::buffer, Location::device}},
      {Op::load, {Location::home, Location::slot}},
      {Op::recall, {Location::home, Location::slot}},
      {Op::store, {Location::slot, Location::home}},
      {Op::upload, {Location::slot, Location::device}},
      {Op::download, {Location::device, Location::buffer}},
      {Op::spill, {Location::buffer, Location::home}},
  };
  for (const auto& [moving, move] : moves_of_ops)
    if (moving == op) return move;
  throw std::logic_error(std::string(name_of(op)) + " moves nothing");
}

// A parameter with master weights is rounded from these, and only written.
bool moves(Op op, const Chunk& chunk, const SegmentBuffers& own, const OffloadArray& array) {
  const ArrayKind kind = array.id.kind;
  switch (op) {
    case Op::load:
      if (kind == ArrayKind::gradient) return !chunk.ahead && array.returns();
      return array.returns() && (kind != ArrayKind::parameter || !own.has_master());
    case Op::store:
      return array.returns() && kind != ArrayKind::gradient;
    case Op::recall:
    case Op::spill:
      return kind == ArrayKind::gradient && array.home == Tier::file;
    case Op::download:
      return kind == ArrayKind::gradient;
    default:
      return kind == ArrayKind::parameter;
  }
}

}  // namespace zero::detail
