// The elements that each rank saves, by the plan alone: no memory needs to be taken.
#pragma once

#include <vector>

#include "zero/checkpoint/format/manifest.h"
#include "zero/plan/engine_plan.h"
#include "zero/state/stage_parts.h"
#include "zero/state/tensor_parts.h"

namespace zero::detail {

struct SavedLayout {
  const EnginePlan& plan;
  const Model& model;  // of the plan
  const TensorParts& tensor;
  const StageParts* stages = nullptr;  // null or empty: the model is whole

  const Model& whole() const { return in_stages() ? stages->whole : model; }
  // Returns the number of a parameter of this rank in the whole model; and in the rank's own model,
  // -1 for a parameter of another stage.
  int in_whole(int own) const {
    return in_stages() ? stages->of_stage[stages->own].in_whole[own] : own;
  }
  int in_own(int param) const {
    return in_stages() ? stages->of_stage[stages->own].from_whole[param] : param;
  }

  // The ranges of parameters and states that a rank of the grid saves, in the order of the rank's
  // file.
  std::vector<checkpoint::ElementRange> ranges_of(int rank, bool trainable_only) const {
    return ranges({plan.grid.data_rank(rank), plan.grid.coordinate(Axis::tensor, rank),
                   plan.grid.coordinate(Axis::pipe, rank)},
                  {.trainable_only = trainable_only, .saved_only = true});
  }
  // The ranges that this rank holds as its own.
  std::vector<checkpoint::ElementRange> own_ranges() const {
    return ranges({plan.on.rank, plan.on.tensor.rank, plan.on.pipe.rank}, {});
  }
  // `param`: as in the whole model.
  checkpoint::ManifestParameter parameter(int param) const;
  std::vector<checkpoint::ManifestParameter> buffers() const;
  // Bytes that keepers hold for a rank with zero_core.peer_copies; node_of: by rank.
  std::int64_t peer_copy_bytes(int rank, const std::vector<int>& node_of) const;

 private:
  struct Place {
    int data_rank, tensor_rank, pipe_rank;
  };
  struct Wanted {
    bool trainable_only = false;
    bool saved_only = false;  // without what another rank or stage saves
  };
  bool in_stages() const { return stages != nullptr && !stages->empty(); }
  const UpdateGroups& updates() const { return in_stages() ? *stages->updates : plan.updates; }
  std::vector<checkpoint::ElementRange> ranges(const Place& place, const Wanted& wanted) const;
};

}  // namespace zero::detail
