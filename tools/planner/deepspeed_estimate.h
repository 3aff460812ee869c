// DeepSpeed's own estimate of a run, next to ours: the formulas of its documentation of memory
// requirements (estimate_zero2_model_states_mem_needs_all_live and
// estimate_zero3_model_states_mem_needs_all_live). It has none for stages 0 and 1.
#pragma once

#include <cstdint>
#include <optional>

#include "tools/planner/model_shape.h"
#include "zero/config.h"
#include "zero/plan/placement.h"

namespace zero::planner {

// Bytes of a GPU; nothing for other stages.
std::optional<std::int64_t> deepspeed_estimate(const ModelShape& shape,
                                               const detail::Strategy& strategy,
                                               const ZeroOptions& options, int ranks);

}  // namespace zero::planner
