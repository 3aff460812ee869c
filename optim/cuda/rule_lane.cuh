// Arguments of an update rule on the GPU: the factors, and the elements of a lane with states.
#pragma once

#include <type_traits>

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

__device__ inline bool differ(float a, float b, DType dtype) {
  return with_float_type(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, float>)
      return __float_as_uint(a) != __float_as_uint(b);
    else
      return from_float<T>(a).bits != from_float<T>(b).bits;
  });
}

// Stores the new value of an element, and notes a change.
__device__ inline void store_updated(const DeviceUpdate& update, std::int64_t at, float before,
                                     float after) {
  store_one(after, update.master, update.master_dtype, at);
  if (update.parameter != nullptr) store_one(after, update.parameter, update.parameter_dtype, at);
  if (update.changed != nullptr && differ(before, after, update.parameter_dtype))
    atomicOr(reinterpret_cast<unsigned*>(update.changed) + at / 32, 1u << (at % 32));
}

// Notes the changes of a lane. The threads of 32 elements, which are active together because counts
// are multiples of 128, join their bits.
template <int elements>
__device__ inline void note_changes(const DeviceUpdate& update, std::int64_t at,
                                    const float* before, const float* after) {
  constexpr unsigned group = 32 / elements;
  const unsigned mask = ((1u << group) - 1) << (threadIdx.x % 32 / group * group);
  unsigned bits = 0;
  for (int i = 0; i < elements; ++i)
    bits |= (differ(before[i], after[i], update.parameter_dtype) ? 1u : 0u) << (at % 32 + i);
  for (unsigned k = 1; k < group; k *= 2) bits |= __shfl_xor_sync(mask, bits, k);
  if (at % 32 == 0 && bits != 0) reinterpret_cast<unsigned*>(update.changed)[at / 32] |= bits;
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
