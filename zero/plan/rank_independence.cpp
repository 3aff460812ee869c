#include "zero/plan/rank_independence.h"

#include <string>

#include "zero/base/error.h"
#include "zero/plan/engine_plan.h"

namespace zero::detail {

namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& reason) {
  throw ConfigError(key + " with zero_core.rank_independent: " + reason);
}

void check_precision(const Config& config) {
  const std::string in_fp32 =
      "micro batches are added in fp32 as they are, and the sum is divided once; ";
  if (config.grad_accum_dtype.value_or(DType::fp32) != DType::fp32)
    refuse("data_types.grad_accum_dtype", in_fp32 + "give \"fp32\", or leave the key out");
  if (config.prescale_gradients) refuse("prescale_gradients", in_fp32 + "leave the key out");
  if (config.gradient_predivide_factor != 1)
    refuse("gradient_predivide_factor", in_fp32 + "leave the key out");
  if (config.gradient_allreduce_op != "mean")
    refuse("gradient_allreduce_op \"" + config.gradient_allreduce_op + "\"",
           "a sum over ranks grows with their number; choose \"mean\"");
}

void check_order(const Config& config) {
  const CoreOptions& core = config.zero_core;
  const std::string in_order =
      "gradients are summed in the order of the step's micro batches, over all ranks in each micro "
      "step; leave the key out";
  if (core.gradient_sync != GradientSync::automatic && core.gradient_sync != GradientSync::each)
    refuse("zero_core.gradient_sync", in_order + ", or choose \"each\"");
  if (core.shard_group_size) refuse("zero_core.shard_group_size (mics_shard_size)", in_order);
  if (core.reduce_group_size != 0 || !core.wider_reduce_groups.empty())
    refuse("zero_core.reduce_group_size", in_order);
  if (core.inner_group_size) refuse("zero_core.inner_group_size", in_order);
}

// A single rank sends nothing, and would not round values to the format.
void check_formats(const Config& config) {
  const ZeroOptions& zero = config.zero_optimization;
  const WireOptions& wire = config.zero_core.wire;
  const std::string encodes =
      "one rank encodes nothing, so results would depend on the number of ranks; leave the key "
      "out";
  const auto refuse_format = [&](const char* key, const std::string& format) {
    if (!format.empty() && format != "none")
      refuse("zero_core.wire." + std::string(key) + " \"" + format + "\"", encodes);
  };
  refuse_format("gather", wire.gather);
  refuse_format("gather_inside", wire.gather_inside);
  refuse_format("reduce", wire.reduce);
  refuse_format("reduce_inside", wire.reduce_inside);
  if (zero.quantized_gradients) refuse("zero_optimization.zero_quantized_gradients", encodes);
  if (zero.quantized_weights) refuse("zero_optimization.zero_quantized_weights", encodes);
  if (zero.quantized_nontrainable_weights)
    refuse("zero_optimization.zero_quantized_nontrainable_weights", encodes);
}

void check_recomputation(const CoreOptions& options, const PlanRank& on) {
  const std::string key = "zero_core.recompute_every";
  const std::int64_t every = options.recompute_every;
  if (every > 0 && !options.rank_independent)
    throw ConfigError(key + " " + std::to_string(every) +
                      " needs zero_core.rank_independent, with which a program chooses samples by "
                      "the number of the micro batch, so that another rank can repeat it: set that "
                      "to true, or leave the key out");
  if (every > 0 && on.pipe.ranks > 1)
    throw ConfigError(key + " " + std::to_string(every) + " with a pipeline of " +
                      std::to_string(on.pipe.ranks) +
                      " stages: a rank would need all stages to repeat a micro batch; leave the "
                      "key out");
  if (every > 0 && on.tensor.ranks > 1)
    throw ConfigError(key + " " + std::to_string(every) + " with a tensor group of " +
                      std::to_string(on.tensor.ranks) +
                      " ranks: its ranks would have to repeat a micro batch together, which this "
                      "version cannot do; leave the key out");
}

}  // namespace

std::int64_t fold_group_of(const CoreOptions& options) {
  const std::string key = "zero_core.rank_independent_group";
  const std::int64_t group = options.rank_independent_group;
  if (group > 1 && !options.rank_independent)
    throw ConfigError(key + " " + std::to_string(group) +
                      " has no effect without zero_core.rank_independent: set that to true, or "
                      "leave the key out");
  return group;
}

void check_rank_independent(const Config& config, const PlanRank& on) {
  check_recomputation(config.zero_core, on);
  if (!config.zero_core.rank_independent) return;
  check_precision(config);
  check_order(config);
  check_formats(config);
  if (on.on_gpu && !config.zero_core.deterministic)
    refuse("zero_core.deterministic false",
           "NCCL's own sums depend on the number of GPUs; set it to true");
}

}  // namespace zero::detail
