// Arguments of an update rule on the GPU: the factors, and the elements of a lane with states.
#pragma once

#include "optim/cuda/lanes.cuh"
#include "optim/device_kernels.h"

namespace zero::optim::cuda {

template <class Rule>
__device__ auto factors_of(const DeviceUpdate& update, const StepDecision& decision,
                           std::int64_t group) {
  auto factors = factors_from<Rule, float>(factors_of_group(update, decision, group));
  factors.gradient_multiplier = static_cast<float>(decision.gradient_multiplier);
  return factors;
}

// Elements of a lane, with states.
template <class Rule, int elements = lane_elements>
struct Lane {
  float gradient[elements], master[elements];
  float states[Rule::states + 1][elements];

  __device__ void load(const DeviceUpdate& update, std::int64_t at) {
    load_lane<elements>(update.gradient, update.gradient_dtype, at, gradient);
    load_lane<elements>(update.master, update.master_dtype, at, master);
    for (int s = 0; s < Rule::states; ++s)
      load_lane<elements>(update.states[s], update.state_dtype, at, states[s]);
  }
  __device__ void store_states(const DeviceUpdate& update, std::int64_t at) const {
    for (int s = 0; s < Rule::states; ++s)
      store_lane<elements>(states[s], update.states[s], update.state_dtype, at);
  }
  // Calls body(moments) with the states of element i.
  template <class Body>
  __device__ void with_states(int i, const Body& body) {
    float moments[Rule::states + 1] = {};
    for (int s = 0; s < Rule::states; ++s) moments[s] = states[s][i];
    body(moments);
    for (int s = 0; s < Rule::states; ++s) states[s][i] = moments[s];
  }
};

}  // namespace zero::optim::cuda
