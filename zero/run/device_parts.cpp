#include "zero/run/device_parts.h"

#include <algorithm>

namespace zero::detail {

DeviceParts::DeviceParts(const EnginePlan& plan, const ModelState& state) : plan_(plan) {
  for (const Chunk& chunk : plan.inputs.chunks)
    add(chunk, state.segment(chunk.flat_unit, chunk.segment));
  first_part_.push_back(parts_.size());
}

void DeviceParts::add(const Chunk& chunk, const SegmentBuffers& buffers) {
  first_part_.push_back(parts_.size());
  if (chunk.on_host) return;
  const std::int64_t first = buffers.update_begin + chunk.begin;
  for (UpdateRun run : buffers.runs) {
    run.begin = std::max(run.begin, first);
    run.end = std::min(run.end, first + chunk.count);
    if (run.begin >= run.end) continue;
    const optim::RuleKind rule = optim::rule_kind(plan_.updates.group(run.group).options);
    if (optim::sees_matrices(rule)) continue;
    const bool follows = parts_.size() > first_part_.back() &&
                         parts_.back().begin + parts_.back().count == run.begin - first;
    if (!follows || parts_.back().rule != rule)
      parts_.push_back({rule, run.group, run.begin - first, 0, ranges_.size(), 0});
    DevicePart& part = parts_.back();
    part.count = run.end - first - part.begin;
    add_ranges(chunk, run, first + part.begin);
    part.range_count = static_cast<int>(ranges_.size() - part.first_range);
  }
}

// Counted from the first element of the part, `origin` in the segment. A range of a rule that sees
// tensor norms reaches from one parameter to the next; padding lies between them.
void DeviceParts::add_ranges(const Chunk& chunk, const UpdateRun& run, std::int64_t origin) {
  if (!optim::sees_tensor_norms(parts_.back().rule)) {
    ranges_.push_back({run.end - origin, run.group, 0, run.end - origin});
    return;
  }
  const Segment& segment = plan_.layout.flat_units[chunk.flat_unit].segments[chunk.segment];
  const auto pieces = pieces_between(*plan_.inputs.model, segment, run.begin, run.end);
  if (pieces.empty()) ranges_.push_back({run.end - origin, run.group, 0, run.begin - origin});
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const Piece& piece = pieces[p];
    const std::int64_t end = p + 1 < pieces.size() ? pieces[p + 1].segment_begin : run.end;
    ranges_.push_back(
        {end - origin, run.group, piece.param, piece.segment_begin + piece.count - origin});
  }
}

void point_at(const SegmentBuffers& buffers, const ChunkView& view, const UpdateGroup& group,
              const ElementsOfChunk& elements, optim::DeviceUpdate& update) {
  const std::int64_t begin = elements.begin;
  update.count = elements.count;
  update.gradient = view.gradient + begin * size_of(view.gradient_dtype);
  update.gradient_dtype = view.gradient_dtype;
  update.master = view.master + begin * size_of(view.master_dtype);
  update.master_dtype = view.master_dtype;
  update.state_dtype = view.state_dtype;
  int states = 0;
  for (const int state : group.states) {
    const auto k = static_cast<std::size_t>(state);
    update.states[states++] = view.states[k] + (buffers.state_position(k, view.begin + begin) -
                                                buffers.state_position(k, view.begin)) *
                                                   size_of(view.state_dtype);
  }
  if (view.parameter != nullptr) update.parameter = view.parameter + begin * size_of(view.dtype);
  update.parameter_dtype = view.dtype;
}

}  // namespace zero::detail
