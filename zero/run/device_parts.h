// What the optimizer's launches on a device are: the elements of each chunk, by update rule, with
// the ranges that belong to one group or one tensor. A pure function of plan and state's layout,
// made once; host memory.
#pragma once

#include <span>
#include <vector>

#include "optim/device_kernels.h"
#include "zero/plan/engine_plan.h"
#include "zero/state/state_store.h"

namespace zero::detail {

// Elements of a chunk whose groups have one rule: what one launch updates.
struct DevicePart {
  optim::RuleKind rule{};
  int group = 0;           // one of them
  std::int64_t begin = 0;  // from the chunk's first element
  std::int64_t count = 0;
  std::size_t first_range = 0;  // in DeviceParts::ranges()
  int range_count = 0;
};

class DeviceParts {
 public:
  DeviceParts(const EnginePlan& plan, const ModelState& state);

  int chunks() const { return static_cast<int>(first_part_.size()) - 1; }
  std::span<const DevicePart> of(int chunk) const {
    const auto c = static_cast<std::size_t>(chunk);
    return std::span(parts_).subspan(first_part_[c], first_part_[c + 1] - first_part_[c]);
  }
  // Of all parts, one after another; each part's count from its first element.
  const std::vector<optim::GroupRange>& ranges() const { return ranges_; }

 private:
  void add(const Chunk& chunk, const SegmentBuffers& buffers);
  void add_ranges(const Chunk& chunk, const UpdateRun& run, std::int64_t origin);

  const EnginePlan& plan_;
  std::vector<DevicePart> parts_;
  std::vector<std::size_t> first_part_;  // by chunk, and the end
  std::vector<optim::GroupRange> ranges_;
};

// Elements of a chunk, from its first one.
struct ElementsOfChunk {
  std::int64_t begin = 0, count = 0;
};

// Points an update at them; their groups all have the states of `group`.
void point_at(const SegmentBuffers& buffers, const ChunkView& view, const UpdateGroup& group,
              const ElementsOfChunk& elements, optim::DeviceUpdate& update);

}  // namespace zero::detail
