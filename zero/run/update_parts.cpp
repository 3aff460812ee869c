#include "zero/run/update_parts.h"

namespace zero::detail {

namespace {

// A range of a rule that sees tensor norms reaches from one parameter to the next; padding lies
// between them.
void add_ranges(const EnginePlan& plan, const UpdatePart& part, const Segment& segment,
                const GroupRange& run, std::vector<optim::GroupRange>& ranges) {
  const std::int64_t origin = part.range.begin;
  if (optim::rule_of(part.rule).scope != optim::UpdateScope::tensor_norms) {
    ranges.push_back({run.end - origin, run.group, 0, run.end - origin});
    return;
  }
  const auto params = params_in(*plan.inputs.model, segment, run);
  if (params.empty()) ranges.push_back({run.end - origin, run.group, 0, run.begin - origin});
  for (std::size_t p = 0; p < params.size(); ++p) {
    const std::int64_t end = p + 1 < params.size() ? params[p + 1].segment_begin : run.end;
    ranges.push_back({end - origin, run.group, params[p].param, params[p].range().end - origin});
  }
}

}  // namespace

UpdateParts::UpdateParts(const EnginePlan& plan, const ModelState& state) {
  for (const Chunk& chunk : plan.inputs.chunks) {
    std::vector<UpdatePart>& parts = of_chunk.emplace_back();
    const SegmentBuffers& buffers = state.segment(chunk);
    for (GroupRange run : buffers.runs) {
      static_cast<Range&>(run) = intersection(run, buffers.range_of(chunk));
      const optim::UpdateRule& rule = *plan.updates.group(run.group).rule;
      if (run.empty() || rule.scope == optim::UpdateScope::whole_matrices) continue;
      const bool follows = !parts.empty() && parts.back().range.end == run.begin;
      if (!follows || parts.back().rule != rule.kind)
        parts.push_back({rule.kind, run.group, run, static_cast<int>(ranges.size())});
      UpdatePart& part = parts.back();
      part.range.end = run.end;
      add_ranges(plan, part, plan.layout.segment(chunk), run, ranges);
      part.range_count = static_cast<int>(ranges.size()) - part.first_range;
    }
  }
}

}  // namespace zero::detail
