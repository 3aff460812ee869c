#include "zero/plan/placement.h"

#include <iterator>
#include <string>

#include "zero/base/error.h"

namespace zero::detail {

namespace {

constexpr Placement replicate = Placement::replicate, partial = Placement::partial,
                    shard = Placement::shard;
constexpr Strategy stages[] = {
    {"stage 0 (NO_SHARD)", replicate, replicate, replicate, false, false},
    {"stage 1", replicate, partial, shard, false, false},
    {"stage 2", replicate, shard, shard, false, true},
    {"stage 3 (FULL_SHARD)", shard, shard, shard, true, true},
};
constexpr Strategy shard_grad_op = {"SHARD_GRAD_OP", shard, shard, shard, false, true};

}  // namespace

Strategy strict_strategy(const Strategy& strategy) {
  Strategy strict = *std::rbegin(stages);
  strict.strategy = strategy.strategy;
  strict.sync_each = strategy.sync_each;
  return strict;
}

Strategy strategy_for(const ZeroOptions& zero_optimization, const CoreOptions& zero_core) {
  const int stage = zero_optimization.stage;
  if (stage < 0 || stage >= std::ssize(stages))
    throw ConfigError("zero_optimization.stage is " + std::to_string(stage) +
                      "; expected 0, 1, 2 or 3");
  const Strategy& row = stages[stage];
  return row.reshard_after_forward && !zero_core.reshard_after_forward ? shard_grad_op : row;
}

}  // namespace zero::detail
