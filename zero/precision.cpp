#include "zero/precision.h"

#include "zero/base/error.h"

namespace zero::detail {

namespace {

DType compute_dtype(const Config& config) {
  if (config.bf16_enabled && config.fp16_enabled)
    throw ConfigError("fp16.enabled and bf16.enabled exclude each other; set one of them to false");
  if (config.fp16_enabled) return DType::fp16;
  return config.bf16_enabled ? DType::bf16 : DType::fp32;
}

// A sum over many ranks leaves the range of fp16 where their average does not, so the average is
// summed, as by DeepSpeed's ZeRO stages. Elsewhere the division costs nothing in the optimizer.
float predivision(const Config& config, DType wire, int ranks) {
  if (ranks == 1) return 1;
  if (config.prescale_gradients) return static_cast<float>(ranks);
  if (config.gradient_predivide_factor != 1)
    return static_cast<float>(config.gradient_predivide_factor);
  return wire == DType::fp16 ? static_cast<float>(ranks) : 1;
}

}  // namespace

Precision precision_for(const Config& config, int ranks) {
  Precision precision;
  precision.compute = compute_dtype(config);
  precision.wire = config.communication_data_type.value_or(precision.compute);
  precision.accumulation = config.grad_accum_dtype.value_or(precision.compute);
  precision.predivision = predivision(config, precision.wire, ranks);
  return precision;
}

}  // namespace zero::detail
