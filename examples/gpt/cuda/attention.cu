#include "examples/gpt/cuda/attention.h"

#include <cmath>

#include "examples/gpt/cuda/element.cuh"

namespace gpt::cuda {
namespace {

constexpr int threads = 128;
constexpr int lane_channels = 16;  // channels of a row per lane
constexpr int chunk = 4;           // positions whose scores are computed together
constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

// Tiles for heads of up to `channels`; narrower heads are padded with zeros.
template <int channels>
struct Tiling {
  static constexpr int lanes = channels / lane_channels;  // per row
  static constexpr int rows = threads / lanes;            // per block
  static constexpr int positions = 4096 / channels;       // per tile
};

// The rows of a head: start and distance.
template <class P>
struct HeadRows {
  P* data;
  std::int64_t distance;
  __device__ P* row(std::int64_t position) const { return data + position * distance; }
};

// The sample, head and rows that a block works on.
struct Place {
  std::int64_t sample, head, first;
};

// Late queries have the most keys, and go first, so that no long block remains at the end.
__device__ Place place_of_block(std::int64_t heads, std::int64_t blocks_of_head, int rows,
                                bool late_first) {
  const std::int64_t head = blockIdx.x / blocks_of_head, block = blockIdx.x % blocks_of_head;
  return {head / heads, head % heads, (late_first ? blocks_of_head - 1 - block : block) * rows};
}

template <class P>
__device__ HeadRows<P> head_rows(P* data, std::int64_t distance, const Dims& d, const Place& place,
                                 std::int64_t head) {
  return {data + place.sample * d.sequence * distance + head * d.head_channels, distance};
}

// The part of a row that a lane holds: channels in fours, interleaved with the row's other lanes.
template <int channels>
struct Fragment {
  float values[lane_channels] = {};

  static __device__ int channel(int lane, int i) {
    return (i / 4 * Tiling<channels>::lanes + lane) * 4 + i % 4;
  }
  template <class T>
  __device__ void load(const T* row, int lane, std::int64_t width, float factor) {
    for (int i = 0; i < lane_channels; ++i)
      if (channel(lane, i) < width) values[i] = zero::to_float(row[channel(lane, i)]) * factor;
  }
  template <class T>
  __device__ void store(T* row, int lane, std::int64_t width, float factor) const {
    for (int i = 0; i < lane_channels; ++i)
      if (channel(lane, i) < width) row[channel(lane, i)] = zero::from_float<T>(values[i] * factor);
  }
  // Returns this lane's part of the product with a row of a tile.
  __device__ float dot(const float* row, int lane) const {
    float sum = 0;
    for (int i = 0; i < lane_channels; i += 4) {
      const float4 other = *reinterpret_cast<const float4*>(row + channel(lane, i));
      sum = fmaf(values[i], other.x, sum);
      sum = fmaf(values[i + 1], other.y, sum);
      sum = fmaf(values[i + 2], other.z, sum);
      sum = fmaf(values[i + 3], other.w, sum);
    }
    return sum;
  }
  __device__ void add(float factor, const float* row, int lane) {
    for (int i = 0; i < lane_channels; i += 4) {
      const float4 other = *reinterpret_cast<const float4*>(row + channel(lane, i));
      values[i] = fmaf(factor, other.x, values[i]);
      values[i + 1] = fmaf(factor, other.y, values[i + 1]);
      values[i + 2] = fmaf(factor, other.z, values[i + 2]);
      values[i + 3] = fmaf(factor, other.w, values[i + 3]);
    }
  }
  __device__ void scale(float factor) {
    for (int i = 0; i < lane_channels; ++i) values[i] *= factor;
  }
};

// Returns the sum over a row's lanes, on all lanes.
template <int channels>
__device__ float row_sum(float value) {
  for (int apart = Tiling<channels>::lanes / 2; apart > 0; apart /= 2)
    value += __shfl_xor_sync(~0u, value, apart);
  return value;
}

// Loads positions [first, first + positions) of a head as floats, with zeros after the end of the
// sequence and of the head's width. Called by all threads of a block.
template <int channels, class T>
__device__ void load_tile(const HeadRows<const T>& rows, std::int64_t first, const Dims& d,
                          float* tile) {
  for (int i = threadIdx.x; i < Tiling<channels>::positions * channels; i += threads) {
    const std::int64_t position = first + i / channels;
    const int c = i % channels;
    const bool inside = position < d.sequence && c < d.head_channels;
    tile[i] = inside ? zero::to_float(rows.row(position)[c]) : 0.0f;
  }
}

template <class T, int channels>
__global__ void __launch_bounds__(threads)
    forward_kernel(AttentionForward<T> a, std::int64_t blocks_of_head, float scale) {
  using Tile = Tiling<channels>;
  alignas(16) __shared__ float keys[Tile::positions * channels];
  alignas(16) __shared__ float values[Tile::positions * channels];
  const Dims& d = a.dims;
  const Place place = place_of_block(d.heads, blocks_of_head, Tile::rows, true);
  const std::int64_t key_head = place.head / (d.heads / d.key_heads);
  const auto query_rows = head_rows(a.qkv.query, a.qkv.query_distance, d, place, place.head);
  const auto key_rows = head_rows(a.qkv.key, a.qkv.key_distance, d, place, key_head);
  const auto value_rows = head_rows(a.qkv.value, a.qkv.key_distance, d, place, key_head);
  const int lane = threadIdx.x % Tile::lanes;
  const std::int64_t query = place.first + threadIdx.x / Tile::lanes;
  const std::int64_t seen = min(place.first + Tile::rows, d.sequence);  // by the block

  Fragment<channels> q, out;
  if (query < d.sequence) q.load(query_rows.row(query), lane, d.head_channels, scale * log2_e);
  float top = -INFINITY, total = 0;
  for (std::int64_t first = 0; first < seen; first += Tile::positions) {
    __syncthreads();
    load_tile<channels>(key_rows, first, d, keys);
    load_tile<channels>(value_rows, first, d, values);
    __syncthreads();
    for (int j = 0; j < Tile::positions && first + j < seen; j += chunk) {
      float scores[chunk], largest = top;
      for (int k = 0; k < chunk; ++k) {
        scores[k] = row_sum<channels>(q.dot(keys + (j + k) * channels, lane));
        if (first + j + k > query) scores[k] = -INFINITY;
        largest = fmaxf(largest, scores[k]);
      }
      // `largest` is finite since every query sees the first key.
      const float shrink = exp2f(top - largest);
      top = largest;
      total *= shrink;
      out.scale(shrink);
      for (int k = 0; k < chunk; ++k) {
        const float weight = exp2f(scores[k] - top);
        total += weight;
        out.add(weight, values + (j + k) * channels, lane);
      }
    }
  }
  if (query >= d.sequence) return;
  const auto out_rows = head_rows(a.out, d.heads * d.head_channels, d, place, place.head);
  out.store(out_rows.row(query), lane, d.head_channels, 1 / total);
  if (lane == 0)
    a.log_sums[(place.sample * d.heads + place.head) * d.sequence + query] =
        (top + log2f(total)) * ln_2;
}

// Computes, with weights P, dP = dO V^T and delta = dO . O:  dS = P (dP - delta),  dQ = scale dS K.
template <class T, int channels>
__global__ void __launch_bounds__(threads)
    query_gradient_kernel(AttentionBackward<T> a, std::int64_t blocks_of_head, float scale) {
  using Tile = Tiling<channels>;
  alignas(16) __shared__ float keys[Tile::positions * channels];
  alignas(16) __shared__ float values[Tile::positions * channels];
  const Dims& d = a.dims;
  const Place place = place_of_block(d.heads, blocks_of_head, Tile::rows, true);
  const std::int64_t key_head = place.head / (d.heads / d.key_heads),
                     width = d.heads * d.head_channels;
  const auto key_rows = head_rows(a.qkv.key, a.qkv.key_distance, d, place, key_head);
  const auto value_rows = head_rows(a.qkv.value, a.qkv.key_distance, d, place, key_head);
  const int lane = threadIdx.x % Tile::lanes;
  const std::int64_t query = place.first + threadIdx.x / Tile::lanes;
  const std::int64_t seen = min(place.first + Tile::rows, d.sequence);
  const std::int64_t statistic = (place.sample * d.heads + place.head) * d.sequence + query;
  const bool inside = query < d.sequence;

  Fragment<channels> q, dout, out, dquery;
  if (inside) {
    q.load(head_rows(a.qkv.query, a.qkv.query_distance, d, place, place.head).row(query), lane,
           d.head_channels, scale * log2_e);
    dout.load(head_rows(a.dout, width, d, place, place.head).row(query), lane, d.head_channels, 1);
    out.load(head_rows(a.out, width, d, place, place.head).row(query), lane, d.head_channels, 1);
  }
  float delta = 0;
  for (int i = 0; i < lane_channels; ++i) delta = fmaf(dout.values[i], out.values[i], delta);
  delta = row_sum<channels>(delta);
  const float log_sum = inside ? a.log_sums[statistic] * log2_e : 0.0f;
  for (std::int64_t first = 0; first < seen; first += Tile::positions) {
    __syncthreads();
    load_tile<channels>(key_rows, first, d, keys);
    load_tile<channels>(value_rows, first, d, values);
    __syncthreads();
    for (int j = 0; j < Tile::positions && first + j < seen; j += chunk)
      for (int k = 0; k < chunk; ++k) {
        const float *key = keys + (j + k) * channels, *value = values + (j + k) * channels;
        const float score = row_sum<channels>(q.dot(key, lane));
        const float dweight = row_sum<channels>(dout.dot(value, lane));
        const bool sees = inside && first + j + k <= query;
        dquery.add(sees ? exp2f(score - log_sum) * (dweight - delta) : 0.0f, key, lane);
      }
  }
  if (!inside) return;
  if (lane == 0) a.deltas[statistic] = delta;
  const auto to = head_rows(a.dqkv.query, a.dqkv.query_distance, d, place, place.head);
  dquery.store(to.row(query), lane, d.head_channels, scale);
}

// Computes dV = P^T dO and dK = scale dS^T Q, summed over the query heads that share these keys.
template <class T, int channels>
__global__ void __launch_bounds__(threads)
    key_gradient_kernel(AttentionBackward<T> a, std::int64_t blocks_of_head, float scale) {
  using Tile = Tiling<channels>;
  alignas(16) __shared__ float queries[Tile::positions * channels];
  alignas(16) __shared__ float gradients[Tile::positions * channels];
  const Dims& d = a.dims;
  const Place place = place_of_block(d.key_heads, blocks_of_head, Tile::rows, false);
  const std::int64_t members = d.heads / d.key_heads;
  const int lane = threadIdx.x % Tile::lanes;
  const std::int64_t key = place.first + threadIdx.x / Tile::lanes;
  const bool inside = key < d.sequence;

  Fragment<channels> k, v, dkey, dvalue;
  if (inside) {
    k.load(head_rows(a.qkv.key, a.qkv.key_distance, d, place, place.head).row(key), lane,
           d.head_channels, scale * log2_e);
    v.load(head_rows(a.qkv.value, a.qkv.key_distance, d, place, place.head).row(key), lane,
           d.head_channels, 1);
  }
  for (std::int64_t head = place.head * members; head < (place.head + 1) * members; ++head) {
    const auto query_rows = head_rows(a.qkv.query, a.qkv.query_distance, d, place, head);
    const auto dout_rows = head_rows(a.dout, d.heads * d.head_channels, d, place, head);
    const std::int64_t statistics = (place.sample * d.heads + head) * d.sequence;
    // Starts at the block's first position, because earlier queries see none of its keys.
    for (std::int64_t first = place.first; first < d.sequence; first += Tile::positions) {
      __syncthreads();
      load_tile<channels>(query_rows, first, d, queries);
      load_tile<channels>(dout_rows, first, d, gradients);
      __syncthreads();
      for (int j = 0; j < Tile::positions && first + j < d.sequence; ++j) {
        const std::int64_t query = first + j;
        const float *q = queries + j * channels, *dout = gradients + j * channels;
        const float score = row_sum<channels>(k.dot(q, lane));
        const float dweight = row_sum<channels>(v.dot(dout, lane));
        const float weight =
            inside && key <= query ? exp2f(score - a.log_sums[statistics + query] * log2_e) : 0.0f;
        dvalue.add(weight, dout, lane);
        dkey.add(weight * (dweight - a.deltas[statistics + query]), q, lane);
      }
    }
  }
  if (!inside) return;
  dkey.store(head_rows(a.dqkv.key, a.dqkv.key_distance, d, place, place.head).row(key), lane,
             d.head_channels, scale);
  dvalue.store(head_rows(a.dqkv.value, a.dqkv.key_distance, d, place, place.head).row(key), lane,
               d.head_channels, 1);
}

// Calls body<channels>() with the width of the tiles.
template <class Body>
void with_channels(const Dims& dims, const Body& body) {
  if (dims.head_channels <= 64)
    body.template operator()<64>();
  else
    body.template operator()<most_head_channels>();
}

template <class Call, int channels>
void launch_over(const char* name, void (*kernel)(Call, std::int64_t, float), const Call& call,
                 std::int64_t heads, cudaStream_t stream) {
  const std::int64_t blocks = blocks_of(call.dims.sequence, Tiling<channels>::rows);
  const auto all = static_cast<unsigned>(blocks * call.dims.batch * heads);
  const auto scale =
      static_cast<float>(1 / std::sqrt(static_cast<double>(call.dims.head_channels)));
  launch(Launch{name, dim3(all), threads, stream}, kernel, call, blocks, scale);
}

}  // namespace

template <class T>
void attention_forward(const AttentionForward<T>& call, cudaStream_t stream) {
  with_channels(call.dims, [&]<int channels>() {
    launch_over<AttentionForward<T>, channels>("forward_kernel", forward_kernel<T, channels>, call,
                                               call.dims.heads, stream);
  });
}

template <class T>
void attention_backward(const AttentionBackward<T>& call, cudaStream_t stream) {
  with_channels(call.dims, [&]<int channels>() {
    using Call = AttentionBackward<T>;
    launch_over<Call, channels>("query_gradient_kernel", query_gradient_kernel<T, channels>, call,
                                call.dims.heads, stream);
    launch_over<Call, channels>("key_gradient_kernel", key_gradient_kernel<T, channels>, call,
                                call.dims.key_heads, stream);
  });
}

#define GPT_INSTANTIATE(T)                                                   \
  template void attention_forward(const AttentionForward<T>&, cudaStream_t); \
  template void attention_backward(const AttentionBackward<T>&, cudaStream_t);
GPT_INSTANTIATE(float)
GPT_INSTANTIATE(zero::bf16)
GPT_INSTANTIATE(zero::fp16)
#undef GPT_INSTANTIATE

}  // namespace gpt::cuda
