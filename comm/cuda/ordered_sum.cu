#include "comm/cuda/ordered_sum.h"

#include <algorithm>

#include "comm/cuda/lane.cuh"
#include "zero/base/cuda/cuda_stream.h"
#include "zero/base/cuda/launch.h"
#include "zero/base/error.h"

namespace zero::comm::cuda {

namespace {

constexpr int threads = 256;
constexpr std::int64_t most_blocks = 2048;

// Sums by lanes if every source and the target are aligned, otherwise element by element. Elements
// after the last whole lane are always summed singly.
template <class T>
__global__ void __launch_bounds__(threads) ordered_sum_kernel(OrderedSum sum) {
  const auto* sources = static_cast<const T*>(sum.sources);
  auto* out = static_cast<T*>(sum.out);
  const std::int64_t thread = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * threads;
  const bool by_lanes =
      zero::cuda::is_aligned(sources) && zero::cuda::is_aligned(out) && sum.stride % Lane::size == 0;
  const std::int64_t in_lanes = by_lanes ? sum.count / Lane::size * Lane::size : 0;
  for (std::int64_t i = thread * Lane::size; i < in_lanes; i += step * Lane::size) {
    const auto source = [&](int s) {
      Lane lane;
      zero::cuda::load_lane(sources + i + s * sum.stride, lane.values);
      return lane;
    };
    const auto rounded = [](const Lane& partial) {
      Lane lane;
      for (int k = 0; k < Lane::size; ++k) lane.values[k] = to_float(from_float<T>(partial.values[k]));
      return lane;
    };
    zero::cuda::store_lane(grouped_sum(sum.groups, 0, sum.source_count, source, rounded).values,
                           out + i);
  }
  const auto rounded = [](float partial) { return to_float(from_float<T>(partial)); };
  for (std::int64_t i = in_lanes + thread; i < sum.count; i += step) {
    const auto source = [&](int s) { return to_float(sources[i + s * sum.stride]); };
    out[i] = from_float<T>(grouped_sum(sum.groups, 0, sum.source_count, source, rounded));
  }
}

}  // namespace

void launch_ordered_sum(const OrderedSum& sum, Stream stream) {
  if (sum.count == 0) return;
  if (sum.dtype == DType::int64)
    throw UsageError("ordered sums on a GPU are of fp32, bf16 and fp16");
  constexpr int per_block = threads * Lane::size;
  const auto blocks =
      static_cast<unsigned>(std::min((sum.count + per_block - 1) / per_block, most_blocks));
  const zero::cuda::Launch how{"ordered_sum_kernel", dim3(blocks), threads,
                               zero::cuda::native(stream)};
  with_float_type(sum.dtype,
                  [&]<class T>() { zero::cuda::launch(how, ordered_sum_kernel<T>, sum); });
}

}  // namespace zero::comm::cuda
