// How the ranks of a tensor group divide a model: the parts of each split parameter, and the layout
// of each rank's part of the model. Made at start, equal on all ranks; empty without tensor
// parallelism.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "zero/base/tensor_split.h"
#include "zero/plan/engine_plan.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

struct TensorParts {
  TensorParts() = default;
  // Collective over the tensor group. Throws DisagreementError if its ranks have declared different
  // models, the sizes of parts excepted.
  TensorParts(Ranks& tensor, const Model& model, const EnginePlan& plan);

  // Null for a parameter that is not split.
  const TensorSplit* split(int param) const {
    return !splits.empty() && splits[param] ? &*splits[param] : nullptr;
  }

  // The first element of a rank's part of a parameter, in the order of parts.
  std::int64_t begin(int param, int rank) const {
    const TensorSplit* divided = split(param);
    return divided != nullptr ? divided->begin(rank) : 0;
  }

  // The model that a rank has declared.
  struct Part {
    Model model;
    Layout layout;
  };
  std::vector<std::optional<TensorSplit>> splits;  // per parameter
  std::vector<Part> of_rank;                       // per tensor rank
};

}  // namespace zero::detail
