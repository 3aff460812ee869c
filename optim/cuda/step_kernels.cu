// The kernels of an optimizer step. Compiled without contraction; sums are of integers, so no
// result depends on the order of threads.
#include <cuda_runtime.h>

#include <algorithm>

#include "optim/cuda/lanes.cuh"
#include "optim/cuda/matrix_kernels.h"
#include "optim/device_kernels.h"
#include "optim/element_types.h"
#include "optim/matrix_elements.h"

namespace zero::optim {

namespace {

using namespace cuda;

template <class Rule>
__device__ auto factors_of(const DeviceUpdate& update, const StepVerdict& verdict,
                           const GroupRange& range) {
  return factors_from<Rule>(factors_of_group(update, verdict, range.group),
                            static_cast<float>(verdict.gradient_multiplier));
}

// The elements of one lane, with their states.
template <class Rule>
struct Lane {
  float gradient[lane_elements], master[lane_elements];
  float states[Rule::states + 1][lane_elements];

  __device__ void load(const DeviceUpdate& update, std::int64_t at) {
    load_lane(update.gradient, update.gradient_dtype, at, gradient);
    load_lane(update.master, update.master_dtype, at, master);
    for (int s = 0; s < Rule::states; ++s)
      load_lane(update.states[s], update.state_dtype, at, states[s]);
  }
  __device__ void store_states(const DeviceUpdate& update, std::int64_t at) const {
    for (int s = 0; s < Rule::states; ++s)
      store_lane(states[s], update.states[s], update.state_dtype, at);
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

template <class Rule>
__global__ void __launch_bounds__(threads)
    update_kernel(DeviceUpdate update, const StepVerdict* verdict) {
  if (verdict->apply == 0) return;
  for_lanes(update.count, [&](std::int64_t at) {
    const int number = range_of(update.ranges, update.range_count, at);
    const GroupRange& range = update.ranges[number];
    auto factors = factors_of<Rule>(update, *verdict, range);
    if constexpr (HasDirection<Rule>) factors.step = update.steps[number];
    Lane<Rule> lane;
    lane.load(update, at);
    for (int i = 0; i < lane_elements; ++i) {
      if (HasDirection<Rule> && at + i >= range.filled) continue;
      lane.with_states(i, [&](float* moments) {
        Rule::apply(factors, lane.gradient[i], lane.master[i], moments);
      });
    }
    store_lane(lane.master, update.master, update.master_dtype, at);
    lane.store_states(update, at);
    if (update.parameter != nullptr)
      store_lane(lane.master, update.parameter, update.parameter_dtype, at);
  });
}

// An array and its element type.
struct Typed {
  void* data;
  DType dtype;
};

__global__ void __launch_bounds__(threads) cast_kernel(Typed to, Typed from, std::int64_t count) {
  for_lanes(count, [&](std::int64_t at) {
    float values[lane_elements];
    load_lane(from.data, from.dtype, at, values);
    store_lane(values, to.data, to.dtype, at);
  });
}

__global__ void __launch_bounds__(threads)
    accumulate_kernel(Typed to, Typed addend, std::int64_t count) {
  for_lanes(count, [&](std::int64_t at) {
    float sum[lane_elements], more[lane_elements];
    load_lane(to.data, to.dtype, at, sum);
    load_lane(addend.data, addend.dtype, at, more);
    for (int i = 0; i < lane_elements; ++i) sum[i] += more[i];
    store_lane(sum, to.data, to.dtype, at);
  });
}

__global__ void __launch_bounds__(threads)
    divide_kernel(Typed gradient, std::int64_t count, float divisor) {
  for_lanes(count, [&](std::int64_t at) {
    float values[lane_elements];
    load_lane(gradient.data, gradient.dtype, at, values);
    for (int i = 0; i < lane_elements; ++i) values[i] = values[i] / divisor;
    store_lane(values, gradient.data, gradient.dtype, at);
  });
}

__global__ void add_loss_kernel(const float* loss, double* sum) {
  *sum += static_cast<double>(*loss);
}

constexpr int tile_lanes = norm_tile / (threads * lane_elements);  // per thread
static_assert(tile_lanes * threads * lane_elements == norm_tile);

// The range of a block's values, for all its threads.
__device__ MagnitudeRange range_of_block(MagnitudeRange own) {
  __shared__ MagnitudeRange warps[threads / 32];
  for (int offset = 16; offset > 0; offset /= 2) {
    own.largest = max(own.largest, __shfl_xor_sync(~0u, own.largest, offset));
    own.smallest = min(own.smallest, __shfl_xor_sync(~0u, own.smallest, offset));
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = own;
  __syncthreads();
  MagnitudeRange all = warps[0];
  for (int w = 1; w < threads / 32; ++w) {
    all.largest = max(all.largest, warps[w].largest);
    all.smallest = min(all.smallest, warps[w].smallest);
  }
  return all;
}

// The sum over the block, right in thread 0.
__device__ unsigned long long sum_of_block(unsigned long long own) {
  __shared__ unsigned long long warps[threads / 32];
  for (int offset = 16; offset > 0; offset /= 2) own += __shfl_xor_sync(~0u, own, offset);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = own;
  __syncthreads();
  unsigned long long sum = 0;
  for (int w = 0; w < threads / 32; ++w) sum += warps[w];
  return sum;
}

template <class T>
__device__ void add_tile(const float (*values)[lane_elements], unsigned finite_lanes,
                         std::int64_t* limbs) {
  MagnitudeRange own;
  for (int l = 0; l < tile_lanes; ++l)
    for (int i = 0; i < lane_elements; ++i) own.include(values[l][i]);
  const MagnitudeRange range = range_of_block(own);
  if (range.largest == 0) return;
  const SquareUnits units = units_of<T>(range);
  with_units(units, [&]<int unit_count, bool cut>() {
    std::uint64_t counts[unit_count] = {};
    for (int l = 0; l < tile_lanes; ++l)
      for (int i = 0; i < lane_elements; ++i)
        if (finite_lanes >> (l * lane_elements + i) & 1u)
          add_square<unit_count, cut>(values[l][i], units.lowest, counts);
    const unsigned long long added = sum_of_block(__popc(finite_lanes));
    for (int k = 0; k < unit_count; ++k) {
      const unsigned long long sum = sum_of_block(counts[k]);
      if (threadIdx.x == 0) add_unit(sum, added, units.lowest + k * norm_unit_bits, limbs);
    }
  });
  if (threadIdx.x == 0) carry_limbs(limbs);
}

// The values of a tile that one thread holds. Those that are not finite count apart.
struct Tile {
  float values[tile_lanes][lane_elements];
  unsigned finite = 0;

  __device__ void put(int lane, int i, float value, bool inside, unsigned long long& non_finite) {
    const bool counts = inside && is_finite_value(value);
    if (inside && !counts) ++non_finite;
    if (counts) finite |= 1u << (lane * lane_elements + i);
    values[lane][i] = counts ? value : 0;
  }
};
static_assert(tile_lanes * lane_elements <= 32);

__device__ std::int64_t lane_at(std::int64_t tile, int lane) {
  return tile * norm_tile + (std::int64_t{lane} * threads + threadIdx.x) * lane_elements;
}

// What one block adds up.
struct BlockSum {
  std::int64_t limbs[norm_limb_count] = {};  // in thread 0
  unsigned long long non_finite = 0;         // of each thread

  // Carried limbs of up to 2^23 blocks add up without overflow; they are carried once more where
  // they are read. By all threads.
  __device__ void add_to(std::int64_t* to_limbs, std::int64_t* to_non_finite) const {
    const unsigned long long left_out = sum_of_block(non_finite);
    if (threadIdx.x != 0) return;
    for (int k = 0; k < norm_limb_count; ++k)
      if (limbs[k] != 0)
        atomicAdd(reinterpret_cast<unsigned long long*>(to_limbs + k),
                  static_cast<unsigned long long>(limbs[k]));
    if (left_out != 0) atomicAdd(reinterpret_cast<unsigned long long*>(to_non_finite), left_out);
  }
};

template <class T>
__global__ void __launch_bounds__(threads)
    norm_kernel(const T* gradient, std::int64_t count, std::int64_t* limbs,
                std::int64_t* non_finite) {
  BlockSum sum;
  for (std::int64_t tile = blockIdx.x; tile * norm_tile < count; tile += gridDim.x) {
    Tile own;
    for (int l = 0; l < tile_lanes; ++l) {
      const std::int64_t at = lane_at(tile, l);
      const bool whole = at + lane_elements <= count;
      float values[lane_elements];
      if (whole) load_lane(gradient + at, values);
      for (int i = 0; i < lane_elements; ++i) {
        const bool inside = whole || at + i < count;
        if (!whole) values[i] = inside ? to_float(gradient[at + i]) : 0.0f;
        own.put(l, i, values[i], inside, sum.non_finite);
      }
    }
    add_tile<T>(own.values, own.finite, sum.limbs);
  }
  sum.add_to(limbs, non_finite);
}

template <class Rule>
__device__ void measure_range(const DeviceUpdate& update, int number, TensorSums* sums,
                              const StepVerdict& verdict) {
  const GroupRange& range = update.ranges[number];
  const std::int64_t first = number == 0 ? 0 : update.ranges[number - 1].end;
  const auto factors = factors_of<Rule>(update, verdict, range);
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
  parameters.add_to(sum.parameter.limbs, &sum.parameter.non_finite);
  directions.add_to(sum.direction.limbs, &sum.direction.non_finite);
}

template <class Rule>
__global__ void __launch_bounds__(threads)
    measure_kernel(DeviceUpdate update, TensorSums* sums, const StepVerdict* verdict) {
  if (verdict->apply == 0) return;
  for (int number = blockIdx.y; number < update.range_count; number += gridDim.y)
    measure_range<Rule>(update, number, sums, *verdict);
}

__global__ void __launch_bounds__(threads)
    steps_kernel(DeviceUpdate update, const TensorSums* sums, const StepVerdict* verdict) {
  const int number = blockIdx.x * threads + threadIdx.x;
  if (verdict->apply == 0 || number >= update.range_count) return;
  const GroupRange& range = update.ranges[number];
  update.steps[number] =
      step_of(factors_of_group(update, *verdict, range.group), sums[range.tensor]);
}

__global__ void __launch_bounds__(threads)
    direct_kernel(DeviceUpdate update, float* directions, const StepVerdict* verdict) {
  if (verdict->apply == 0) return;
  const auto factors = factors_of<MuonRule>(update, *verdict, {0, update.group});
  for_elements(update.count, [&](std::int64_t at) {
    float momentum = load_one(update.states[0], update.state_dtype, at);
    directions[at] = MuonRule::direct(factors, load_one(update.gradient, update.gradient_dtype, at),
                                      load_one(update.master, update.master_dtype, at), &momentum);
    store_one(momentum, update.states[0], update.state_dtype, at);
  });
}

__global__ void __launch_bounds__(threads)
    step_along_kernel(DeviceUpdate update, double scale, const StepVerdict* verdict) {
  if (verdict->apply == 0) return;
  const float* group = factors_of_group(update, *verdict, update.group);
  auto factors = factors_from<MuonStepRule>(group, 0);
  factors.step = step_by(tensor_step(group), scale);
  for_elements(update.count, [&](std::int64_t at) {
    float* no_states = nullptr;
    float master = load_one(update.master, update.master_dtype, at);
    MuonStepRule::apply(factors, load_one(update.gradient, update.gradient_dtype, at), master,
                        no_states);
    store_one(master, update.master, update.master_dtype, at);
    if (update.parameter != nullptr)
      store_one(master, update.parameter, update.parameter_dtype, at);
  });
}

__global__ void __launch_bounds__(threads)
    normalise_kernel(float* values, std::int64_t count, const NormSum* norm) {
  __shared__ float inverse;
  if (threadIdx.x == 0) inverse = inverse_of_norm(norm_of(*norm));
  __syncthreads();
  for_elements(count, [&](std::int64_t at) { values[at] = values[at] * inverse; });
}

__global__ void seal_kernel(const StepRequest* request, const double* loss_sum, StepWord* word) {
  seal_word(*request, *loss_sum, *word);
}

__global__ void decide_kernel(const StepWord* words, int ranks, const StepRequest* request,
                              StepVerdict* verdict) {
  decide_step(words, ranks, *request, *verdict);
}

class CudaKernels final : public DeviceKernels {
 public:
  void cast(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count,
            Stream stream) override {
    if (count == 0) return;
    launch(over("cast_kernel", count / lane_elements, native(stream)), cast_kernel, {to, to_dtype},
           {const_cast<void*>(from), from_dtype}, count);
  }

  void accumulate(void* sum, DType dtype, const void* addend, DType addend_dtype,
                  std::int64_t count, Stream stream) override {
    if (count == 0) return;
    launch(over("accumulate_kernel", count / lane_elements, native(stream)), accumulate_kernel,
           {sum, dtype}, {const_cast<void*>(addend), addend_dtype}, count);
  }

  void divide(void* gradient, DType dtype, std::int64_t count, float divisor,
              Stream stream) override {
    if (count == 0) return;
    launch(over("divide_kernel", count / lane_elements, native(stream)), divide_kernel,
           {gradient, dtype}, count, divisor);
  }

  void add_loss(const float* loss, double* sum, Stream stream) override {
    launch(once("add_loss_kernel", native(stream)), add_loss_kernel, loss, sum);
  }

  void add_norm(const void* gradient, DType dtype, std::int64_t count, StepWord* word,
                Stream stream) override {
    with_float_type(dtype, [&]<class T>(T) {
      add_norm_to(static_cast<const T*>(gradient), count, word, stream);
    });
  }

  void seal(const StepRequest* request, const double* loss_sum, StepWord* word,
            Stream stream) override {
    launch(once("seal_kernel", native(stream)), seal_kernel, request, loss_sum, word);
  }

  void decide(const StepWord* words, int ranks, const StepRequest* request, StepVerdict* verdict,
              Stream stream) override {
    launch(once("decide_kernel", native(stream)), decide_kernel, words, ranks, request, verdict);
  }

  void measure(RuleKind rule, const DeviceUpdate& update, TensorSums* sums,
               const StepVerdict* verdict, Stream stream) override {
    if (update.count == 0 || update.range_count == 0) return;
    constexpr std::int64_t most_tile_blocks = 64, most_range_blocks = 65535;
    const std::int64_t tiles = (update.count + norm_tile - 1) / norm_tile;
    const dim3 blocks(
        static_cast<unsigned>(std::min(tiles, most_tile_blocks)),
        static_cast<unsigned>(std::min<std::int64_t>(update.range_count, most_range_blocks)));
    with_tensor_rule(rule, [&]<class Rule>() {
      launch(Launch{"measure_kernel", blocks, threads, native(stream)}, measure_kernel<Rule>,
             update, sums, verdict);
    });
  }

  void take_steps(const DeviceUpdate& update, const TensorSums* sums, const StepVerdict* verdict,
                  Stream stream) override {
    if (update.range_count == 0) return;
    const int blocks = (update.range_count + threads - 1) / threads;
    launch(Launch{"steps_kernel", dim3(blocks), threads, native(stream)}, steps_kernel, update,
           sums, verdict);
  }

  void direct(const DeviceUpdate& update, float* directions, const StepVerdict* verdict,
              Stream stream) override {
    if (update.count == 0) return;
    launch(over("direct_kernel", update.count, native(stream)), direct_kernel, update, directions,
           verdict);
  }

  void step_along(const DeviceUpdate& update, double scale, const StepVerdict* verdict,
                  Stream stream) override {
    if (update.count == 0) return;
    launch(over("step_along_kernel", update.count, native(stream)), step_along_kernel, update,
           scale, verdict);
  }

  void product(const Product& product, std::int64_t rows, Stream stream) override {
    launch_product(product, rows, native(stream));
  }
  void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to,
                 Stream stream) override {
    launch_transpose(from, rows, cols, to, native(stream));
  }
  void add_to_diagonal(float* matrix, std::int64_t edge, float value, Stream stream) override {
    launch_add_to_diagonal(matrix, edge, value, native(stream));
  }

  void normalise(float* values, std::int64_t count, NormSum* norm, Stream stream) override {
    if (count == 0) return;
    zero::cuda::check(cudaMemsetAsync(norm, 0, sizeof *norm, native(stream)), "cudaMemsetAsync");
    add_norm_to(values, count, norm, stream);
    launch(over("normalise_kernel", count, native(stream)), normalise_kernel, values, count, norm);
  }

  void update(RuleKind rule, const DeviceUpdate& update, const StepVerdict* verdict,
              Stream stream) override {
    if (update.count == 0 || update.range_count == 0) return;
    with_rule(rule, [&]<class Rule>() {
      launch(over("update_kernel", update.count / lane_elements, native(stream)),
             update_kernel<Rule>, update, verdict);
    });
  }

 private:
  // Word: StepWord or NormSum.
  template <class T, class Word>
  void add_norm_to(const T* values, std::int64_t count, Word* word, Stream stream) {
    const std::int64_t tiles = (count + norm_tile - 1) / norm_tile;
    if (tiles == 0) return;
    const int blocks = static_cast<int>(std::min<std::int64_t>(tiles, most_blocks));
    launch(Launch{"norm_kernel", dim3(blocks), threads, native(stream)}, norm_kernel<T>, values,
           count, word->limbs, &word->non_finite);
  }
};

}  // namespace

std::unique_ptr<DeviceKernels> create_cuda_kernels() {
  return std::make_unique<CudaKernels>();
}

}  // namespace zero::optim
