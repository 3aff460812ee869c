// Computes DeepSpeed's own estimate of a run, for comparison with ours, by the formulas in the
// documentation of memory requirements (estimate_zero2_model_states_mem_needs_all_live and
// estimate_zero3_model_states_mem_needs_all_live).
#pragma once

#include <cstdint>
#include <optional>

#include "tools/planner/model_shape.h"
#include "zero/config.h"
#include "zero/plan/placement.h"

namespace zero::planner {

// Returns bytes per GPU; nothing for stages 0 and 1, for which DeepSpeed has no formula.
std::optional<std::int64_t> deepspeed_estimate(const ModelShape& shape,
                                               const detail::Strategy& strategy,
                                               const ZeroOptions& options, int ranks);

}  // namespace zero::planner
