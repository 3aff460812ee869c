// zero_core.rank_independent: losses, gradients and weights have equal bits at any number of ranks.
//
// A step has B micro batches, numbered from 0. Rank b % ranks trains micro batch b in its micro
// step b / ranks. A gradient is the sum of all w(g_b), added in fp32 in the order of their numbers;
// w rounds to the wire dtype, even on a single rank. The ranks of one micro step have consecutive
// summands, so each micro step adds its summands to the sum of earlier ones (Route::Kind::fold).
#pragma once

#include "zero/config.h"

namespace zero::detail {

struct PlanRank;

// Throws ConfigError that names the key, for settings with which sums depend on the ranks.
void check_rank_independent(const Config& config, const PlanRank& on);

}  // namespace zero::detail
