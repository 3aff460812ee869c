#include "zero/plan/placement.h"

#include <iterator>
#include <string>

#include "zero/base/error.h"

namespace zero::detail {

namespace {

constexpr Placement stages[] = {
    {"stage 0 (NO_SHARD)", Rest::replicate, Rest::replicate, Rest::replicate, false, false},
    {"stage 1", Rest::replicate, Rest::partial, Rest::shard, false, false},
    {"stage 2", Rest::replicate, Rest::shard, Rest::shard, false, true},
    {"stage 3 (FULL_SHARD)", Rest::shard, Rest::shard, Rest::shard, true, true},
};
constexpr Placement shard_grad_op = {"SHARD_GRAD_OP", Rest::shard, Rest::shard,
                                     Rest::shard,     false,       true};

}  // namespace

Placement strict_placement(const Placement& row) {
  Placement strict = *std::rbegin(stages);
  strict.strategy = row.strategy;
  strict.sync_each = row.sync_each;
  return strict;
}

Placement placement_for(const ZeroOptions& zero_optimization, const CoreOptions& zero_core) {
  const int stage = zero_optimization.stage;
  if (stage < 0 || stage >= static_cast<int>(std::size(stages)))
    throw ConfigError("zero_optimization.stage is " + std::to_string(stage) +
                      "; expected 0, 1, 2 or 3");
  const Placement& row = stages[stage];
  if (row.reshard_after_forward && !zero_core.reshard_after_forward) return shard_grad_op;
  return row;
}

}  // namespace zero::detail
