// zero_core.rank_independent: losses, gradients and weights have equal bits at any number of ranks.
//
// A step has B micro batches, numbered from 0 on; number b is micro step b / ranks of rank
// b % ranks. A gradient is the sum of all w(g_b), where w rounds to the dtype of the wire (on a
// single rank too), added in fp32 in the order of their numbers, starting from the first. So the
// ranks of one micro step hold consecutive summands, and each micro step adds its own to the sum of
// earlier ones (Route::Kind::fold).
#pragma once

#include "zero/config.h"

namespace zero::detail {

struct Model;
struct PlanRank;

// Throws ConfigError that names the key, for settings under which sums depend on the ranks.
void check_rank_independent(const Config& config, const Model& model, const PlanRank& on);

}  // namespace zero::detail
