// Kernels of an optimizer step, except the norms, which take most of the compile time. Compiled
// without contraction.
#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "optim/cuda/lanes.cuh"
#include "optim/cuda/matrix_kernels.cuh"
#include "optim/cuda/norm_kernels.h"
#include "optim/cuda/rule_lane.cuh"
#include "optim/device_kernels.h"

namespace zero::optim {

namespace {

using namespace cuda;

// Returns the index of the range that contains an element.
__device__ int range_of(const DeviceUpdate& update, std::int64_t element) {
  int low = 0, high = update.range_count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (element < update.ranges[middle].end)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// Elements that a thread updates at a time. With eight, a thread fills each 32-byte sector of an
// fp32 array by two half-sector stores; with four, neighboring threads fill a sector together: on
// an H200 AdamW then has 0.947 of the copy's bandwidth, instead of 0.922. Only AdamW was measured.
template <class Rule>
constexpr int update_lane = std::is_same_v<Rule, AdamRule<true>> ? 4 : lane_elements;

template <class Rule, int elements>
__global__ void __launch_bounds__(threads)
    update_kernel(DeviceUpdate update, const StepDecision* decision) {
  if (decision->apply == 0) return;
  for_lanes<elements>(update.count, [&](std::int64_t at) {
    const int number = range_of(update, at);
    const GroupRange& range = update.ranges[number];
    auto factors = factors_of<Rule>(update, *decision, range.group);
    if constexpr (HasDirection<Rule>) factors.step = update.steps[number];
    if constexpr (std::is_same_v<Rule, AdafactorRule>) factors.decay = update.decays[number];
    Lane<Rule, elements> lane;
    lane.load(update, at);
    float before[elements];
    for (int i = 0; i < elements; ++i) before[i] = lane.master[i];
    for (int i = 0; i < elements; ++i) {
      if (HasDirection<Rule> && at + i >= range.filled) continue;
      lane.with_states(i, [&](float* moments) {
        Rule::apply(factors, lane.gradient[i], lane.master[i], moments);
      });
    }
    store_lane<elements>(lane.master, update.master, update.master_dtype, at);
    lane.store_states(update, at);
    if (update.parameter != nullptr)
      store_lane<elements>(lane.master, update.parameter, update.parameter_dtype, at);
    if (update.changed != nullptr) note_changes<elements>(update, at, before, lane.master);
  });
}

// An array and the element type.
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

__global__ void add_losses_kernel(const double* losses, double* sums, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += losses[i];
}

__global__ void __launch_bounds__(threads)
    steps_kernel(DeviceUpdate update, const TensorSums* sums, const StepDecision* decision) {
  const int number = blockIdx.x * threads + threadIdx.x;
  if (decision->apply == 0 || number >= update.range_count) return;
  const GroupRange& range = update.ranges[number];
  const float* factors = factors_of_group(update, *decision, range.group);
  if (update.tensors == nullptr) {
    update.steps[number] = step_of(factors, sums[range.tensor]);
    return;
  }
  const StepAndDecay found =
      adafactor_step(factors, sums[range.tensor], update.tensors[number].elements);
  update.steps[number] = found.step;
  update.decays[number] = found.decay;
}

__global__ void __launch_bounds__(threads)
    direct_kernel(DeviceUpdate update, float* directions, const StepDecision* decision) {
  if (decision->apply == 0) return;
  const auto factors = factors_of<MuonRule>(update, *decision, update.group);
  for_elements(update.count, [&](std::int64_t at) {
    float momentum = load_one(update.states[0], update.state_dtype, at);
    directions[at] = MuonRule::direct(factors, load_one(update.gradient, update.gradient_dtype, at),
                                      load_one(update.master, update.master_dtype, at), &momentum);
    store_one(momentum, update.states[0], update.state_dtype, at);
  });
}

__global__ void __launch_bounds__(threads)
    step_along_kernel(DeviceUpdate update, double scale, const StepDecision* decision) {
  if (decision->apply == 0) return;
  const float* group = factors_of_group(update, *decision, update.group);
  auto factors = factors_from<MuonStepRule, float>(group);
  factors.step = step_by(tensor_step(group), scale);
  for_elements(update.count, [&](std::int64_t at) {
    float* no_states = nullptr;
    const float before = load_one(update.master, update.master_dtype, at);
    float master = before;
    MuonStepRule::apply(factors, load_one(update.gradient, update.gradient_dtype, at), master,
                        no_states);
    store_updated(update, at, before, master);
  });
}

__global__ void __launch_bounds__(threads)
    normalize_kernel(RuleKind rule, float* values, std::int64_t count, const NormSum* norm) {
  __shared__ float inverse;
  if (threadIdx.x == 0) inverse = inverse_of_norm(rule, norm_of(*norm));
  __syncthreads();
  for_elements(count, [&](std::int64_t at) { values[at] = values[at] * inverse; });
}

__global__ void complete_kernel(const StepRequest* request, const double* loss_sum,
                                StepVote* vote) {
  complete_vote(*request, *loss_sum, *vote);
}

__global__ void decide_kernel(const StepVote* words, int ranks, const StepRequest* request,
                              StepDecision* decision, const double* losses) {
  decide_step(words, ranks, *request, *decision, losses);
}

class CudaKernels final : public DeviceKernels {
 public:
  void cast(const void* from, DType from_dtype, void* to, DType to_dtype, std::int64_t count,
            Stream stream) override {
    launch_over("cast_kernel", count / lane_elements, stream, cast_kernel, {to, to_dtype},
                {const_cast<void*>(from), from_dtype}, count);
  }

  void accumulate(void* sum, DType dtype, const void* addend, DType addend_dtype,
                  std::int64_t count, Stream stream) override {
    launch_over("accumulate_kernel", count / lane_elements, stream, accumulate_kernel, {sum, dtype},
                {const_cast<void*>(addend), addend_dtype}, count);
  }

  void divide(void* gradient, DType dtype, std::int64_t count, float divisor,
              Stream stream) override {
    launch_over("divide_kernel", count / lane_elements, stream, divide_kernel, {gradient, dtype},
                count, divisor);
  }

  void add_loss(const float* loss, double* sum, Stream stream) override {
    launch(once("add_loss_kernel", stream), add_loss_kernel, loss, sum);
  }

  void add_losses(const double* losses, double* sums, std::int64_t count, Stream stream) override {
    launch(once("add_losses_kernel", stream), add_losses_kernel, losses, sums, count);
  }

  void add_norm(const void* gradient, DType dtype, std::int64_t count, NormSum* sum,
                Stream stream) override {
    launch_norm(gradient, dtype, count, sum, stream);
  }

  void complete(const StepRequest* request, const double* loss_sum, StepVote* vote,
                Stream stream) override {
    launch(once("complete_kernel", stream), complete_kernel, request, loss_sum, vote);
  }

  void decide(const StepVote* words, int ranks, const StepRequest* request, StepDecision* decision,
              const double* losses, Stream stream) override {
    launch(once("decide_kernel", stream), decide_kernel, words, ranks, request, decision, losses);
  }

  void add_factor_sums(const DeviceUpdate& update, const StepDecision* decision,
                       Stream stream) override {
    if (update.count == 0 || update.range_count == 0) return;
    launch_factor_sums(update, decision, stream);
  }

  void take_factors(const DeviceUpdate& update, const FactoredMatrix& matrix,
                    const StepDecision* decision, Stream stream) override {
    launch_moments(update, matrix, decision, stream);
  }

  void measure(RuleKind rule, const DeviceUpdate& update, TensorSums* sums,
               const StepDecision* decision, Stream stream) override {
    if (update.count == 0 || update.range_count == 0) return;
    if (rule == RuleKind::adafactor_matrix)
      return launch_measure_factored(update, sums, decision, stream);
    launch_measure(rule, update, sums, decision, stream);
  }

  void take_steps(const DeviceUpdate& update, const TensorSums* sums, const StepDecision* decision,
                  Stream stream) override {
    if (update.range_count == 0) return;
    const int blocks = (update.range_count + threads - 1) / threads;
    launch(Launch{"steps_kernel", dim3(blocks), threads, native(stream)}, steps_kernel, update,
           sums, decision);
  }

  void direct(const DeviceUpdate& update, float* directions, const StepDecision* decision,
              Stream stream) override {
    launch_over("direct_kernel", update.count, stream, direct_kernel, update, directions, decision);
  }

  void step_along(const DeviceUpdate& update, double scale, const StepDecision* decision,
                  Stream stream) override {
    launch_over("step_along_kernel", update.count, stream, step_along_kernel, update, scale,
                decision);
  }

  void product(const Product& product, std::int64_t rows, Stream stream) override {
    if (rows == 0 || product.cols == 0) return;
    constexpr std::int64_t most_grid_rows = 65535;
    const std::int64_t tall = (rows + tile - 1) / tile, wide = (product.cols + tile - 1) / tile;
    const dim3 blocks(static_cast<unsigned>(wide),
                      static_cast<unsigned>(std::min(tall, most_grid_rows)));
    launch(Launch{"product_kernel", blocks, threads, native(stream)}, product_kernel, product,
           rows);
  }

  void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to,
                 Stream stream) override {
    launch_over("transpose_kernel", rows * cols, stream, transpose_kernel, from, rows, cols, to);
  }

  void add_to_diagonal(float* matrix, std::int64_t edge, float value, Stream stream) override {
    launch_over("diagonal_kernel", edge, stream, diagonal_kernel, matrix, edge, value);
  }

  void normalize(RuleKind rule, float* values, std::int64_t count, NormSum* norm,
                 Stream stream) override {
    if (count == 0) return;
    zero::cuda::call_cuda("cudaMemsetAsync", cudaMemsetAsync, norm, 0, sizeof *norm,
                          native(stream));
    launch_norm(values, DType::fp32, count, norm, stream);
    launch_over("normalize_kernel", count, stream, normalize_kernel, rule, values, count, norm);
  }

  void update(RuleKind rule, const DeviceUpdate& update, const StepDecision* decision,
              Stream stream) override {
    if (update.count == 0 || update.range_count == 0) return;
    if (rule == RuleKind::adafactor_matrix) return launch_update_factored(update, decision, stream);
    with_rule(rule, [&]<class Rule>() {
      launch_over("update_kernel", update.count / update_lane<Rule>, stream,
                  update_kernel<Rule, update_lane<Rule>>, update, decision);
    });
  }
};

}  // namespace

std::unique_ptr<DeviceKernels> create_cuda_kernels() {
  return std::make_unique<CudaKernels>();
}

}  // namespace zero::optim
