#include "zero/plan/precision.h"

#include "zero/base/error.h"

namespace zero::detail {

namespace {

DType compute_dtype(const Config& config) {
  if (config.bf16_enabled && config.fp16_enabled)
    throw ConfigError("fp16.enabled and bf16.enabled exclude each other; set one of them to false");
  if (config.fp16_enabled) return DType::fp16;
  return config.bf16_enabled ? DType::bf16 : DType::fp32;
}

DType master_dtype(const Config& config, DType compute) {
  const bool own = compute == DType::bf16   ? config.bf16_master_weights_and_grads
                   : compute == DType::fp16 ? config.fp16_master_weights_and_grads
                                            : false;
  return own ? compute : DType::fp32;
}

DType state_dtype(const Config& config, DType compute) {
  if (!config.bf16_optimizer_states || compute != DType::bf16) return DType::fp32;
  if (!config.bf16_master_weights_and_grads)
    throw ConfigError(
        "bf16.bf16_optimizer_states needs bf16.bf16_master_weights_and_grads; set that to true");
  return DType::bf16;
}

// A sum over many ranks can exceed the range of fp16 when the average does not, so the average is
// summed, as in DeepSpeed's ZeRO stages. Otherwise the optimizer divides at no extra cost.
float predivision(const Config& config, DType wire, int ranks) {
  if (ranks == 1 || config.gradient_allreduce_op == "sum" || config.zero_core.rank_independent)
    return 1;
  if (config.prescale_gradients) return static_cast<float>(ranks);
  if (config.gradient_predivide_factor != 1)
    return static_cast<float>(config.gradient_predivide_factor);
  return wire == DType::fp16 ? static_cast<float>(ranks) : 1;
}

}  // namespace

Precision precision_for(const Config& config, int ranks) {
  if (config.gradient_allreduce_op != "mean" && config.gradient_allreduce_op != "sum")
    throw ConfigError("gradient_allreduce_op: \"" + config.gradient_allreduce_op +
                      "\" is not known; allowed: mean, sum");
  Precision precision;
  precision.compute = compute_dtype(config);
  precision.wire = config.communication_data_type.value_or(precision.compute);
  precision.accumulation = config.zero_core.rank_independent
                               ? DType::fp32
                               : config.grad_accum_dtype.value_or(precision.compute);
  precision.master = master_dtype(config, precision.compute);
  precision.state = state_dtype(config, precision.compute);
  precision.predivision = predivision(config, precision.wire, ranks);
  return precision;
}

}  // namespace zero::detail
