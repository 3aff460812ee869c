#include "zero/plan/offload_moves.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "zero/plan/engine_plan.h"

namespace zero::detail {

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
bool moves(Op op, const Chunk& chunk, const SegmentTypes& types, const ArrayRow& row) {
  const bool gradient = row.id.kind == ArrayKind::gradient_shard;
  const bool parameter = row.id.kind == ArrayKind::parameter_shard;
  switch (op) {
    case Op::load:
      return row.returns() && (gradient ? !chunk.ahead : !parameter || !types.has_master());
    case Op::store:
      return row.returns() && !gradient;
    case Op::recall:
    case Op::spill:
      return gradient && row.home == Tier::file;
    case Op::download:
      return gradient;
    default:
      return parameter;
  }
}

std::int64_t moved_bytes(const EnginePlan& plan, Op op, int target) {
  std::int64_t bytes = 0;
  if (op == Op::fetch || op == Op::supply) {
    for (const ArrayRow& row : plan.arrays.pools[Pool::shard_buffers].rows)
      if (row.id.flat_unit == target) bytes += row.bytes();
    return bytes;
  }
  for_chunks(plan.inputs.chunks, op, target, [&](int number) {
    const Chunk& chunk = plan.inputs.chunks[number];
    const SegmentTypes types = plan.policy.types(plan.layout.segment(chunk));
    for (const ArrayRow& row : plan.arrays.of_chunk[number])
      if (moves(op, chunk, types, row)) bytes += row.bytes();
  });
  return bytes;
}

}  // namespace zero::detail
