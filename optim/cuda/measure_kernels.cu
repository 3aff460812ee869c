// Per-tensor norms of parameters and directions.
#include "optim/cuda/norm_kernels.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "optim/cuda/block_sum.cuh"
#include "optim/cuda/rule_lane.cuh"

namespace zero::optim::cuda {
namespace {

template <class Rule>
__device__ void measure_range(const DeviceUpdate& update, int number, TensorSums* sums,
                              const StepDecision& decision) {
  const GroupRange& range = update.ranges[number];
  const std::int64_t first = number == 0 ? 0 : update.ranges[number - 1].end;
  const auto factors = factors_of<Rule>(update, decision, range.group);
  BlockSum parameters, directions;
  for (std::int64_t tile = blockIdx.x; first + tile * norm_tile < range.filled; tile += gridDim.x) {
    Tile parameter, direction;
    for (int l = 0; l < tile_lanes; ++l) {
      const std::int64_t at = first + lane_at(tile, l);
      const bool any = at < range.filled;
      Lane<Rule> lane;
      if (any) lane.load(update, at);
      for (int i = 0; i < lane_elements; ++i) {
        const bool inside = at + i < range.filled;
        float step = 0;
        if (inside)
          lane.with_states(i, [&](float* moments) {
            step = Rule::direct(factors, lane.gradient[i], lane.master[i], moments);
          });
        parameter.put(l, i, inside ? lane.master[i] : 0, inside, parameters.non_finite);
        direction.put(l, i, step, inside, directions.non_finite);
      }
      if (any) lane.store_states(update, at);
    }
    add_tile<float>(parameter.values, parameter.finite, parameters.limbs);
    add_tile<float>(direction.values, direction.finite, directions.limbs);
  }
  TensorSums& sum = sums[range.tensor];
  parameters.add_to(sum.parameter);
  directions.add_to(sum.direction);
}

template <class Rule>
__global__ void __launch_bounds__(threads)
    measure_kernel(DeviceUpdate update, TensorSums* sums, const StepDecision* decision) {
  if (decision->apply == 0) return;
  for (int number = blockIdx.y; number < update.range_count; number += gridDim.y)
    measure_range<Rule>(update, number, sums, *decision);
}

}  // namespace

void launch_measure(RuleKind rule, const DeviceUpdate& update, TensorSums* sums,
                    const StepDecision* decision, Stream stream) {
  constexpr std::int64_t most_tile_blocks = 64, most_range_blocks = 65535;
  const std::int64_t tiles = (update.count + norm_tile - 1) / norm_tile;
  const dim3 blocks(
      static_cast<unsigned>(std::min(tiles, most_tile_blocks)),
      static_cast<unsigned>(std::min<std::int64_t>(update.range_count, most_range_blocks)));
  with_tensor_rule(rule, [&]<class Rule>() {
    launch(Launch{"measure_kernel", blocks, threads, native(stream)}, measure_kernel<Rule>, update,
           sums, decision);
  });
}

}  // namespace zero::optim::cuda
