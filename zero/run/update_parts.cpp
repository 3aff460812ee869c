#include "zero/run/update_parts.h"

namespace zero::detail {

UpdateParts::UpdateParts(const EnginePlan& plan, const ModelState& state) : plan_(plan) {
  for (const Chunk& chunk : plan.inputs.chunks) add(chunk, state.segment(chunk));
}

void UpdateParts::add(const Chunk& chunk, const SegmentBuffers& buffers) {
  std::vector<UpdatePart>& parts = parts_.emplace_back();
  for (GroupRange run : buffers.runs) {
    static_cast<Range&>(run) = intersection(run, buffers.range_of(chunk));
    const optim::UpdateRule& rule = *plan_.updates.group(run.group).rule;
    if (run.empty() || rule.scope == optim::UpdateScope::whole_matrices) continue;
    const bool follows = !parts.empty() && parts.back().range.end == run.begin;
    if (!follows || parts.back().rule != rule.kind)
      parts.push_back({rule.kind, run.group, run, static_cast<int>(ranges_.size())});
    UpdatePart& part = parts.back();
    part.range.end = run.end;
    add_ranges(part, plan_.layout.segment(chunk), run);
    part.range_count = static_cast<int>(ranges_.size()) - part.first_range;
  }
}

// A range of a rule that sees tensor norms reaches from one parameter to the next; padding lies
// between them.
void UpdateParts::add_ranges(const UpdatePart& part, const Segment& segment,
                             const GroupRange& run) {
  const std::int64_t origin = part.range.begin;
  if (optim::rule_of(part.rule).scope != optim::UpdateScope::tensor_norms) {
    ranges_.push_back({run.end - origin, run.group, 0, run.end - origin});
    return;
  }
  const auto params = params_in(*plan_.inputs.model, segment, run);
  if (params.empty()) ranges_.push_back({run.end - origin, run.group, 0, run.begin - origin});
  for (std::size_t p = 0; p < params.size(); ++p) {
    const std::int64_t end = p + 1 < params.size() ? params[p + 1].segment_begin : run.end;
    ranges_.push_back({end - origin, run.group, params[p].param, params[p].range().end - origin});
  }
}

}  // namespace zero::detail
