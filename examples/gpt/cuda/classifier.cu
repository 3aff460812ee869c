#include "examples/gpt/cuda/classifier.h"

#include <cfloat>

#include "examples/gpt/cuda/element.cuh"

namespace gpt::cuda {
namespace {

constexpr int threads = 256;

// The sum of exponentials so far, relative to the largest logit so far.
struct Softmax {
  float top = -FLT_MAX, total = 0;

  __device__ void include(float logit) {
    if (logit > top) {
      total = total * expf(top - logit) + 1;
      top = logit;
    } else {
      total += expf(logit - top);
    }
  }
  __device__ void include(const Softmax& other) {
    const float largest = fmaxf(top, other.top);
    total = total * expf(top - largest) + other.total * expf(other.top - largest);
    top = largest;
  }
};

// Adds up entries of a block pairwise, always in the same pairs; the result is in values[0].
template <class Value, class Add>
__device__ void fold_block(Value* values, const Add& add) {
  for (int half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) add(values[threadIdx.x], values[threadIdx.x + half]);
  }
  __syncthreads();
}

// A block per row. A T is not wider than a float: what a turn of the last loop writes lies where
// this turn or earlier ones have read.
template <class T>
__global__ void __launch_bounds__(threads) classifier_kernel(Classifier a) {
  alignas(Softmax) __shared__ unsigned char memory[threads * sizeof(Softmax)];
  auto* const softmax = reinterpret_cast<Softmax*>(memory);
  const std::int64_t row = blockIdx.x;
  float* const logits = a.logits + row * a.distance;
  const std::int32_t target = a.targets[row];
  const float target_logit = logits[target];
  Softmax own;
  for (std::int64_t i = threadIdx.x; i < a.vocabulary; i += threads) own.include(logits[i]);
  softmax[threadIdx.x] = own;
  fold_block(softmax, [](Softmax& to, const Softmax& from) { to.include(from); });
  const float top = softmax[0].top, total = softmax[0].total;
  const float scale = *a.gradient_scale / a.mean_rows, factor = scale / total;
  if (threadIdx.x == 0) a.losses[row] = logf(total) + (top - target_logit);
  T* const gradient = reinterpret_cast<T*>(logits);
  for (std::int64_t first = 0; first < a.vocabulary; first += threads) {
    const std::int64_t i = first + threadIdx.x;
    float value = 0;
    if (i < a.vocabulary) value = expf(logits[i] - top) * factor - (i == target ? scale : 0.0f);
    __syncthreads();
    if (i < a.vocabulary) gradient[i] = zero::from_float<T>(value);
  }
}

__global__ void __launch_bounds__(threads)
    mean_loss_kernel(const float* losses, std::int64_t count, float* mean) {
  __shared__ double sums[threads];
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += threads) own += static_cast<double>(losses[i]);
  sums[threadIdx.x] = own;
  fold_block(sums, [](double& to, double from) { to += from; });
  if (threadIdx.x == 0) *mean = static_cast<float>(sums[0] / static_cast<double>(count));
}

}  // namespace

template <class T>
void differentiate_logits(const Classifier& call, cudaStream_t stream) {
  launch(Launch{"classifier_kernel", dim3(static_cast<unsigned>(call.rows)), threads, stream},
         classifier_kernel<T>, call);
}

void mean_loss(const float* losses, std::int64_t count, float* mean, cudaStream_t stream) {
  launch(Launch{"mean_loss_kernel", dim3(1), threads, stream}, mean_loss_kernel, losses, count,
         mean);
}

template void differentiate_logits<float>(const Classifier&, cudaStream_t);
template void differentiate_logits<zero::bf16>(const Classifier&, cudaStream_t);
template void differentiate_logits<zero::fp16>(const Classifier&, cudaStream_t);

}  // namespace gpt::cuda
