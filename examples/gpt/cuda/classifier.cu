#include "examples/gpt/cuda/classifier.h"

#include <cuda_pipeline.h>

#include <algorithm>
#include <cfloat>

#include "examples/gpt/cuda/element.cuh"

namespace gpt::cuda {
namespace {

constexpr int threads = 512;
// Blocks per processor, so that one loads while the other computes.
constexpr int blocks_at_once = 2;

// The sum of exponentials so far, relative to the largest logit so far.
struct Softmax {
  float top = -FLT_MAX, total = 0;

  __device__ void include(const Pack& logits) {
    float largest = top;
    for (int i = 0; i < pack_elements; ++i) largest = fmaxf(largest, logits.values[i]);
    total *= expf(top - largest);
    for (int i = 0; i < pack_elements; ++i) total += expf(logits.values[i] - largest);
    top = largest;
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

// A row of logits; a block has copied the first `kept` elements into shared memory. A thread always
// has the same packs, so only needs to wait for its own copies.
template <class T>
class Row {
 public:
  __device__ Row(const Classifier<T>& a, std::int64_t kept)
      : logits_(a.logits + blockIdx.x * a.distance),
        copy_(block_memory<T>()),
        vocabulary_(a.vocabulary),
        distance_(a.distance),
        kept_(kept) {
    constexpr int wide = 16 / sizeof(T);
    for_packs(threadIdx.x, threads, kept, [&](std::int64_t at) {
      for (int i = 0; i < pack_elements; i += wide)
        __pipeline_memcpy_async(copy_ + at + i, logits_ + at + i, 16);
    });
    __pipeline_commit();
    __pipeline_wait_prior(0);
  }

  // Calls body(at, pack) for every pack of the calling thread; entries after the vocabulary are the
  // lowest possible logits.
  template <class Body>
  __device__ void for_logits(const Body& body) const {
    std::int64_t at = std::int64_t{threadIdx.x} * pack_elements;
    constexpr std::int64_t step = threads * pack_elements;
    for (; at < kept_; at += step) body(at, masked(load_whole(copy_ + at), at));
    for (; at < vocabulary_; at += step) body(at, masked(load_whole(logits_ + at), at));
  }

  __device__ void set_gradient(std::int64_t at, const Pack& pack) const {
    store_whole(pack, logits_ + at);
  }
  __device__ void clear_padding() const {
    const std::int64_t first = packs_of(vocabulary_) * pack_elements;
    for_packs(threadIdx.x, threads, distance_ - first,
              [&](std::int64_t at) { set_gradient(first + at, Pack{}); });
  }

 private:
  __device__ Pack masked(Pack pack, std::int64_t at) const {
    for (int i = 0; i < pack_elements; ++i)
      if (at + i >= vocabulary_) pack.values[i] = -FLT_MAX;
    return pack;
  }

  T *logits_, *copy_;
  std::int64_t vocabulary_, distance_, kept_;
};

// One block per row.
template <class T>
__global__ void __launch_bounds__(threads, blocks_at_once)
    classifier_kernel(Classifier<T> a, std::int64_t kept) {
  alignas(Softmax) __shared__ unsigned char memory[threads * sizeof(Softmax)];
  auto* const softmax = reinterpret_cast<Softmax*>(memory);
  const Row<T> row(a, kept);
  const std::int32_t target = a.targets[blockIdx.x];
  const float target_logit = zero::to_float(a.logits[blockIdx.x * a.distance + target]);
  Softmax own;
  row.for_logits([&](std::int64_t, const Pack& logits) { own.include(logits); });
  softmax[threadIdx.x] = own;
  fold_block(softmax, [](Softmax& to, const Softmax& from) { to.include(from); });
  const float top = softmax[0].top, total = softmax[0].total;
  const float scale = *a.gradient_scale / a.mean_rows, factor = scale / total;
  if (threadIdx.x == 0) a.losses[blockIdx.x] = logf(total) + (top - target_logit);
  row.for_logits([&](std::int64_t at, Pack pack) {
    for (int i = 0; i < pack_elements; ++i)
      pack.values[i] = expf(pack.values[i] - top) * factor - (at + i == target ? scale : 0.0f);
    row.set_gradient(at, pack);
  });
  row.clear_padding();
}

template <class T>
std::int64_t kept_elements(std::int64_t vocabulary) {
  int device = 0, most = 0, processor = 0, reserved = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const auto ask = [&](int& value, cudaDeviceAttr attribute) {
    check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  };
  ask(most, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  ask(processor, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  ask(reserved, cudaDevAttrReservedSharedMemoryPerBlock);
  const int bytes = std::min(most, processor / blocks_at_once - reserved) -
                    static_cast<int>(threads * sizeof(Softmax));
  const std::int64_t fitting = bytes / static_cast<std::int64_t>(pack_elements * sizeof(T));
  return std::clamp<std::int64_t>(fitting, 0, packs_of(vocabulary)) * pack_elements;
}

template <class T>
__global__ void __launch_bounds__(threads)
    round_sums_kernel(const float* sums, T* to, bool add, std::int64_t count) {
  const std::int64_t at = (std::int64_t{blockIdx.x} * threads + threadIdx.x) * pack_elements;
  if (at >= count) return;
  Pack sum = load_pack(sums, at, count);
  if (add) {
    const Pack before = load_pack(to, at, count);
    for (int i = 0; i < pack_elements; ++i) sum.values[i] += before.values[i];
  }
  store_pack(sum, to, at, count);
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
std::int64_t prepare_classifier(std::int64_t vocabulary) {
  const std::int64_t kept = kept_elements<T>(vocabulary);
  check(cudaFuncSetAttribute(classifier_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kept) * static_cast<int>(sizeof(T))),
        "cudaFuncSetAttribute");
  return kept;
}

template <class T>
void differentiate_logits(const Classifier<T>& call, std::int64_t kept, cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>(kept) * sizeof(T);
  launch(
      Launch{"classifier_kernel", dim3(static_cast<unsigned>(call.rows)), threads, stream, bytes},
      classifier_kernel<T>, call, kept);
}

template <class T>
void round_sums(const float* sums, T* to, bool add, std::int64_t count, cudaStream_t stream) {
  launch(
      Launch{"round_sums_kernel", dim3(blocks_of(count, threads * pack_elements)), threads, stream},
      round_sums_kernel<T>, sums, to, add, count);
}

void mean_loss(const float* losses, std::int64_t count, float* mean, cudaStream_t stream) {
  launch(Launch{"mean_loss_kernel", dim3(1), threads, stream}, mean_loss_kernel, losses, count,
         mean);
}

#define GPT_INSTANTIATE(T)                                                              \
  template std::int64_t prepare_classifier<T>(std::int64_t);                            \
  template void differentiate_logits(const Classifier<T>&, std::int64_t, cudaStream_t); \
  template void round_sums(const float*, T*, bool, std::int64_t, cudaStream_t);
GPT_INSTANTIATE(float)
GPT_INSTANTIATE(zero::bf16)
GPT_INSTANTIATE(zero::fp16)
#undef GPT_INSTANTIATE

}  // namespace gpt::cuda
