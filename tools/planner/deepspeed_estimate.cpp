#include "tools/planner/deepspeed_estimate.h"

namespace zero::planner {

using detail::Placement;

std::optional<std::int64_t> deepspeed_estimate(const ModelShape& shape,
                                               const detail::Strategy& strategy,
                                               const ZeroOptions& options, int ranks) {
  const bool optimizer = options.offload_optimizer.device != OffloadDevice::none;
  const bool parameters = options.offload_param.device != OffloadDevice::none;
  const std::int64_t all = shape.parameters, layer = 4 * shape.largest_layer;
  if (strategy.gradient != Placement::shard) return std::nullopt;
  if (strategy.parameter != Placement::shard)
    return optimizer ? 2 * all : 4 * all + 16 * all / ranks;
  if (!optimizer) return layer + 18 * all / ranks;
  return parameters ? layer : layer + 2 * all / ranks;
}

}  // namespace zero::planner
