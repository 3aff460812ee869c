// zero_core.rank_independent: losses, gradients and weights have equal bits at any number of ranks.
//
// A step has B micro batches, numbered from 0. Rank b % ranks trains micro batch b in its micro
// step b / ranks. With groups of G micro batches, a gradient is
//
//     sum over j of w( sum over b from jG to min(B, (j + 1)G) - 1 of w(g_b) ).
//
// Both sums are in fp32, in order, from the first value; w rounds to the wire dtype, even on a
// single rank. The ranks of one micro step have consecutive summands, so each micro step adds to
// the sums of earlier micro steps (Route::Kind::fold). The formula names no ranks: the choice of
// the ranks that sum a group changes only the traffic. If a node's ranks hold whole groups, the
// node sums these first, and a single sum per group travels between nodes. A group that continues
// in the next micro step is kept in ArrayKind::open_group.
#pragma once

#include <cstdint>

#include "zero/config.h"

namespace zero::detail {

struct PlanRank;

// Returns the micro batches of a group; 1 without rank_independent. Throws ConfigError.
std::int64_t fold_group_of(const CoreOptions& options);
// Throws ConfigError that names the key, for settings with which sums depend on the ranks.
void check_rank_independent(const Config& config, const PlanRank& on);

}  // namespace zero::detail
