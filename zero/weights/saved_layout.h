// The elements that each rank saves, by the plan alone: no memory needs to be taken.
#pragma once

#include <vector>

#include "zero/checkpoint/format/manifest.h"
#include "zero/plan/engine_plan.h"
#include "zero/state/state.h"

namespace zero::detail {

struct SavedLayout {
  const EnginePlan& plan;
  const Model& model;
  const ModelState& arrays;

  // The ranges of parameters and states that a rank owns, in the order of the rank's file.
  std::vector<checkpoint::ElementRange> ranges_of(int rank, bool trainable_only) const;
  checkpoint::ManifestParameter parameter(int param) const;
  std::vector<checkpoint::ManifestParameter> buffers() const;
  // Bytes that keepers hold for a rank with zero_core.peer_copies; node_of: by rank.
  std::int64_t peer_copy_bytes(int rank, const std::vector<int>& node_of) const;
};

}  // namespace zero::detail
