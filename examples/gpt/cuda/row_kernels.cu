#include "examples/gpt/cuda/row_kernels.h"

#include "examples/gpt/cuda/rows.cuh"

namespace gpt::cuda {
namespace {

// One thread per pack.
__device__ std::int64_t pack_of_thread() {
  return (std::int64_t{blockIdx.x} * threads + threadIdx.x) * pack_elements;
}
Launch thread_per_pack(const char* name, std::int64_t count, cudaStream_t stream) {
  return {name, dim3(blocks_of(count, threads * pack_elements)), threads, stream};
}

template <class T>
__global__ void __launch_bounds__(threads)
    embed_forward_kernel(EmbedForward<T> a, std::int64_t rows) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;
  const T* token = a.token_table + a.tokens[row] * a.channels;
  const T* position =
      a.position_table == nullptr ? nullptr : a.position_table + row % a.sequence * a.channels;
  for_packs(lane_of_warp(), warp_lanes, a.channels, [&](std::int64_t at) {
    Pack sum = load_pack(token, at, a.channels);
    if (position != nullptr) {
      const Pack more = load_pack(position, at, a.channels);
      for (int i = 0; i < pack_elements; ++i) sum.values[i] += more.values[i];
    }
    store_pack(sum, a.out + row * a.channels, at, a.channels);
  });
}

// The gradient of a token's row is the sum over a run of places in the order by tokens. That order
// is cut into segments, so that a frequent token keeps many blocks busy: runs inside a segment are
// added to the table at once, parts of runs across segments go to `open`.
constexpr int segment_rows = 64, segment_threads = 128;

std::int64_t segments_of(std::int64_t rows) {
  return (rows + segment_rows - 1) / segment_rows;
}

template <class T>
struct TokenRuns {
  EmbedBackward<T> a;
  float* open;  // [segments, 2, channels up to a whole pack]: runs from before, and continued runs

  // Returns -1 outside the order.
  __device__ std::int32_t token(std::int64_t place) const {
    return place < 0 || place >= a.rows ? -1 : a.tokens[a.rows_by_token[place]];
  }
  __device__ float* part(std::int64_t segment, bool goes_on) const {
    return open + (2 * segment + goes_on) * packs_of(a.channels) * pack_elements;
  }
  __device__ void add(const Pack& sum, std::int32_t token, std::int64_t at) const {
    T* to = a.dtoken_table + token * a.channels;
    Pack total = load_pack(to, at, a.channels);
    for (int k = 0; k < pack_elements; ++k) total.values[k] += sum.values[k];
    store_pack(total, to, at, a.channels);
  }
};

// One block per segment.
template <class T>
__global__ void __launch_bounds__(segment_threads) embed_segments_kernel(TokenRuns<T> runs) {
  __shared__ std::int32_t rows[segment_rows], tokens[segment_rows + 2];
  const EmbedBackward<T>& a = runs.a;
  const std::int64_t first = std::int64_t{blockIdx.x} * segment_rows;
  const int count = a.rows - first < segment_rows ? static_cast<int>(a.rows - first) : segment_rows;
  for (int i = static_cast<int>(threadIdx.x); i < count + 2; i += segment_threads) {
    tokens[i] = runs.token(first + i - 1);
    if (i < count) rows[i] = a.rows_by_token[first + i];
  }
  __syncthreads();
  for_packs(threadIdx.x, segment_threads, a.channels, [&](std::int64_t at) {
    Pack sum{};
    for (int i = 0; i < count; ++i) {
      const Pack more = load_pack(a.dout + rows[i] * a.channels, at, a.channels);
      for (int k = 0; k < pack_elements; ++k) sum.values[k] += more.values[k];
      const std::int32_t token = tokens[i + 1];
      const bool goes_on = tokens[i + 2] == token;
      if (goes_on && i + 1 < count) continue;
      if (tokens[0] == token)
        store_whole(sum, runs.part(blockIdx.x, false) + at);
      else if (goes_on)
        store_whole(sum, runs.part(blockIdx.x, true) + at);
      else
        runs.add(sum, token, at);
      sum = Pack{};
    }
  });
}

// One block per segment adds up the run that begins there and continues after the segment.
template <class T>
__global__ void __launch_bounds__(segment_threads) embed_runs_kernel(TokenRuns<T> runs) {
  const std::int64_t segment = blockIdx.x, end = (segment + 1) * segment_rows;
  const std::int32_t token = runs.token(end - 1);
  if (token < 0 || runs.token(end) != token || runs.token(segment * segment_rows - 1) == token)
    return;
  for_packs(threadIdx.x, segment_threads, runs.a.channels, [&](std::int64_t at) {
    Pack sum = load_whole(runs.part(segment, true) + at);
    std::int64_t next = segment;
    do {
      const Pack more = load_whole(runs.part(++next, false) + at);
      for (int k = 0; k < pack_elements; ++k) sum.values[k] += more.values[k];
    } while (runs.token((next + 1) * segment_rows) == token);
    runs.add(sum, token, at);
  });
}

template <class T>
__global__ void __launch_bounds__(threads) embed_positions_kernel(EmbedBackward<T> a) {
  const std::int64_t position = row_of_warp();
  if (position >= a.sequence) return;
  for_packs(lane_of_warp(), warp_lanes, a.channels, [&](std::int64_t at) {
    Pack sum{};
    for (std::int64_t row = position; row < a.rows; row += a.sequence) {
      const Pack more = load_pack(a.dout + row * a.channels, at, a.channels);
      for (int i = 0; i < pack_elements; ++i) sum.values[i] += more.values[i];
    }
    T* to = a.dposition_table + position * a.channels;
    Pack total = load_pack(to, at, a.channels);
    for (int i = 0; i < pack_elements; ++i) total.values[i] += sum.values[i];
    store_pack(total, to, at, a.channels);
  });
}

// gelu(x) = x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3), like on the CPU.
constexpr float gelu_factor = 1.5957691216057308f;

__device__ float sigmoid(float x) {
  return 1 / (1 + expf(-x));
}
__device__ float gelu_gate(float x) {
  return sigmoid(gelu_factor * (x + 0.044715f * x * x * x));
}

template <class T>
__global__ void __launch_bounds__(threads)
    gelu_forward_kernel(const T* in, T* out, std::int64_t count) {
  const std::int64_t at = pack_of_thread();
  if (at >= count) return;
  Pack x = load_pack(in, at, count);
  for (int i = 0; i < pack_elements; ++i) x.values[i] *= gelu_gate(x.values[i]);
  store_pack(x, out, at, count);
}

template <class T>
__global__ void __launch_bounds__(threads)
    gelu_backward_kernel(const T* in, T* gradient, std::int64_t count) {
  const std::int64_t at = pack_of_thread();
  if (at >= count) return;
  const Pack pack = load_pack(in, at, count);
  Pack d = load_pack(gradient, at, count);
  for (int i = 0; i < pack_elements; ++i) {
    const float x = pack.values[i], s = gelu_gate(x);
    const float slope = gelu_factor * (1 + 3 * 0.044715f * x * x);
    d.values[i] *= s + x * s * (1 - s) * slope;
  }
  store_pack(d, gradient, at, count);
}

// Returns the elements of the gaps between rows before the pack that begins with element `at`. Rows
// with gaps are whole packs; dividing by packs keeps both numbers below 2^32, since 64-bit division
// is fast for such numbers.
__device__ std::int64_t gaps_before(const RowsOf& rows, std::int64_t at) {
  const std::int64_t gap = rows.distance - rows.width;
  return gap == 0 ? 0 : at / pack_elements / (rows.width / pack_elements) * gap;
}

template <class T>
__global__ void __launch_bounds__(threads)
    swiglu_forward_kernel(SwigluForward<T> a, RowsOf rows, std::int64_t count) {
  const std::int64_t at = pack_of_thread();
  if (at >= count) return;
  const std::int64_t skipped = gaps_before(rows, at);
  Pack x = load_pack(a.gate + skipped, at, count);
  const Pack up = load_pack(a.up + skipped, at, count);
  for (int i = 0; i < pack_elements; ++i)
    x.values[i] = x.values[i] * sigmoid(x.values[i]) * up.values[i];
  store_pack(x, a.out, at, count);
}

template <class T>
__global__ void __launch_bounds__(threads)
    swiglu_backward_kernel(SwigluBackward<T> a, RowsOf rows, std::int64_t count) {
  const std::int64_t at = pack_of_thread();
  if (at >= count) return;
  const std::int64_t skipped = gaps_before(rows, at);
  const Pack gate = load_pack(a.gate + skipped, at, count),
             up = load_pack(a.up + skipped, at, count);
  Pack d = load_pack(a.gradient + skipped, at, count), dgate = d;
  for (int i = 0; i < pack_elements; ++i) {
    const float x = gate.values[i], s = sigmoid(x);
    dgate.values[i] = d.values[i] * up.values[i] * (s + x * s * (1 - s));
    d.values[i] *= x * s;
  }
  store_pack(dgate, a.dgate + skipped, at, count);
  store_pack(d, a.gradient + skipped, at, count);
}

template <class T>
__global__ void __launch_bounds__(threads)
    add_kernel(const T* a, const T* b, T* out, std::int64_t count) {
  const std::int64_t at = pack_of_thread();
  if (at >= count) return;
  Pack sum = load_pack(a, at, count);
  const Pack more = load_pack(b, at, count);
  for (int i = 0; i < pack_elements; ++i) sum.values[i] += more.values[i];
  store_pack(sum, out, at, count);
}

template <class T>
__global__ void __launch_bounds__(threads) add_bias_kernel(T* y, const T* bias, Matrix size) {
  const std::int64_t row = row_of_warp();
  if (row >= size.rows) return;
  for_packs(lane_of_warp(), warp_lanes, size.columns, [&](std::int64_t at) {
    Pack sum = load_pack(y + row * size.columns, at, size.columns);
    const Pack more = load_pack(bias, at, size.columns);
    for (int i = 0; i < pack_elements; ++i) sum.values[i] += more.values[i];
    store_pack(sum, y + row * size.columns, at, size.columns);
  });
}

// One thread per pack of a head's first half, together with the pack of the second half that
// rotates with it; neighboring threads have adjacent packs.
template <class T>
__global__ void __launch_bounds__(threads) rotate_kernel(Rotation<T> a, std::int64_t heads) {
  const std::int64_t half = a.channels / 2, packs = packs_of(half),
                     thread = std::int64_t{blockIdx.x} * threads + threadIdx.x,
                     head = thread / packs, at = thread % packs * pack_elements;
  if (head >= heads) return;  // of all rows
  const std::int64_t row = head / a.heads, angles = row % a.sequence * half;
  T *const first = a.data + row * a.distance + head % a.heads * a.channels, *const second =
                                                                                first + half;
  Pack x = load_pack(first, at, half), y = load_pack(second, at, half);
  const Pack cosines = load_pack(a.cosines + angles, at, half),
             sines = load_pack(a.sines + angles, at, half);
  for (int i = 0; i < pack_elements; ++i) {
    const float u = x.values[i], v = y.values[i], sine = a.direction * sines.values[i];
    x.values[i] = u * cosines.values[i] - v * sine;
    y.values[i] = v * cosines.values[i] + u * sine;
  }
  store_pack(x, first, at, half);
  store_pack(y, second, at, half);
}

}  // namespace

template <class T>
void embed_forward(const EmbedForward<T>& call, std::int64_t rows, cudaStream_t stream) {
  launch(warp_per_row("embed_forward_kernel", rows, stream), embed_forward_kernel<T>, call, rows);
}

std::int64_t embed_scratch(std::int64_t rows, std::int64_t channels) {
  return 2 * segments_of(rows) * packs_of(channels) * pack_elements;
}

template <class T>
void embed_backward(const EmbedBackward<T>& call, float* scratch, cudaStream_t stream) {
  const TokenRuns<T> runs{call, scratch};
  const dim3 segments(static_cast<unsigned>(segments_of(call.rows)));
  launch(Launch{"embed_segments_kernel", segments, segment_threads, stream},
         embed_segments_kernel<T>, runs);
  launch(Launch{"embed_runs_kernel", segments, segment_threads, stream}, embed_runs_kernel<T>,
         runs);
  if (call.dposition_table != nullptr)
    launch(warp_per_row("embed_positions_kernel", call.sequence, stream), embed_positions_kernel<T>,
           call);
}

template <class T>
void gelu_forward(const T* in, T* out, std::int64_t count, cudaStream_t stream) {
  launch(thread_per_pack("gelu_forward_kernel", count, stream), gelu_forward_kernel<T>, in, out,
         count);
}

template <class T>
void gelu_backward(const T* in, T* gradient, std::int64_t count, cudaStream_t stream) {
  launch(thread_per_pack("gelu_backward_kernel", count, stream), gelu_backward_kernel<T>, in,
         gradient, count);
}

template <class T>
void swiglu_forward(const SwigluForward<T>& call, const RowsOf& rows, cudaStream_t stream) {
  launch(thread_per_pack("swiglu_forward_kernel", rows.elements(), stream),
         swiglu_forward_kernel<T>, call, rows, rows.elements());
}

template <class T>
void swiglu_backward(const SwigluBackward<T>& call, const RowsOf& rows, cudaStream_t stream) {
  launch(thread_per_pack("swiglu_backward_kernel", rows.elements(), stream),
         swiglu_backward_kernel<T>, call, rows, rows.elements());
}

template <class T>
void add(const T* a, const T* b, T* out, std::int64_t count, cudaStream_t stream) {
  launch(thread_per_pack("add_kernel", count, stream), add_kernel<T>, a, b, out, count);
}

template <class T>
void add_bias(T* y, const T* bias, const Matrix& size, cudaStream_t stream) {
  launch(warp_per_row("add_bias_kernel", size.rows, stream), add_bias_kernel<T>, y, bias, size);
}

template <class T>
void rotate(const Rotation<T>& call, std::int64_t rows, cudaStream_t stream) {
  const std::int64_t heads = rows * call.heads;
  launch(Launch{"rotate_kernel", dim3(blocks_of(heads * packs_of(call.channels / 2), threads)),
                threads, stream},
         rotate_kernel<T>, call, heads);
}

#define GPT_INSTANTIATE(T)                                                              \
  template void embed_forward(const EmbedForward<T>&, std::int64_t, cudaStream_t);      \
  template void embed_backward(const EmbedBackward<T>&, float*, cudaStream_t);          \
  template void gelu_forward(const T*, T*, std::int64_t, cudaStream_t);                 \
  template void gelu_backward(const T*, T*, std::int64_t, cudaStream_t);                \
  template void swiglu_forward(const SwigluForward<T>&, const RowsOf&, cudaStream_t);   \
  template void swiglu_backward(const SwigluBackward<T>&, const RowsOf&, cudaStream_t); \
  template void add(const T*, const T*, T*, std::int64_t, cudaStream_t);                \
  template void add_bias(T*, const T*, const Matrix&, cudaStream_t);                    \
  template void rotate(const Rotation<T>&, std::int64_t, cudaStream_t);
GPT_INSTANTIATE(float)
GPT_INSTANTIATE(zero::bf16)
GPT_INSTANTIATE(zero::fp16)
#undef GPT_INSTANTIATE

}  // namespace gpt::cuda
