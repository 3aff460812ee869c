#include "examples/gpt/cuda/row_kernels.h"

#include "examples/gpt/cuda/element.cuh"

namespace gpt::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_lanes;

// A warp per row.
__device__ std::int64_t row_of_warp() {
  return std::int64_t{blockIdx.x} * warps + threadIdx.x / warp_lanes;
}
__device__ int lane_of_warp() {
  return threadIdx.x % warp_lanes;
}
Launch warp_per_row(const char* name, std::int64_t rows, cudaStream_t stream) {
  return {name, dim3(blocks_of(rows, warps)), threads, stream};
}
// A thread per pack.
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

// A block per place in the order by tokens; the first place of a token sums all of its rows.
template <class T>
__global__ void __launch_bounds__(threads) embed_tokens_kernel(EmbedBackward<T> a) {
  const std::int64_t first = blockIdx.x;
  const std::int32_t token = a.tokens[a.rows_by_token[first]];
  if (first > 0 && a.tokens[a.rows_by_token[first - 1]] == token) return;
  for_packs(threadIdx.x, threads, a.channels, [&](std::int64_t at) {
    Pack sum{};
    for (std::int64_t i = first; i < a.rows; ++i) {
      const std::int64_t row = a.rows_by_token[i];
      if (a.tokens[row] != token) break;
      const Pack more = load_pack(a.dout + row * a.channels, at, a.channels);
      for (int k = 0; k < pack_elements; ++k) sum.values[k] += more.values[k];
    }
    T* to = a.dtoken_table + token * a.channels;
    Pack total = load_pack(to, at, a.channels);
    for (int k = 0; k < pack_elements; ++k) total.values[k] += sum.values[k];
    store_pack(total, to, at, a.channels);
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

// The sum over a row of term(at, i), a term per element of each pack.
template <class Body>
__device__ float sum_of_row(std::int64_t columns, const Body& terms) {
  float sum = 0;
  for_packs(lane_of_warp(), warp_lanes, columns, [&](std::int64_t at) { sum += terms(at); });
  return warp_sum(sum);
}

template <class T>
__device__ float mean_of_row(const T* in, std::int64_t columns) {
  return sum_of_row(columns,
                    [&](std::int64_t at) {
                      const Pack x = load_pack(in, at, columns);
                      float sum = 0;
                      for (int i = 0; i < pack_elements; ++i) sum += x.values[i];
                      return sum;
                    }) /
         static_cast<float>(columns);
}

template <class T>
__global__ void __launch_bounds__(threads)
    norm_forward_kernel(LayerNormForward<T> a, std::int64_t rows) {
  const std::int64_t row = row_of_warp(), columns = a.channels;
  if (row >= rows) return;
  const T* in = a.in + row * columns;
  const float mean = a.mean == nullptr ? 0.0f : mean_of_row(in, columns);
  const float variance = sum_of_row(columns,
                                    [&](std::int64_t at) {
                                      const Pack x = load_pack(in, at, columns);
                                      float sum = 0;
                                      for (int i = 0; i < pack_elements; ++i) {
                                        const float centred =
                                            i < x.count ? x.values[i] - mean : 0.0f;
                                        sum += centred * centred;
                                      }
                                      return sum;
                                    }) /
                         static_cast<float>(columns);
  const float inverse = 1 / sqrtf(variance + static_cast<float>(a.epsilon));
  for_packs(lane_of_warp(), warp_lanes, columns, [&](std::int64_t at) {
    Pack x = load_pack(in, at, columns);
    const Pack weight = load_pack(a.weight, at, columns);
    for (int i = 0; i < pack_elements; ++i)
      x.values[i] = (x.values[i] - mean) * inverse * weight.values[i];
    if (a.bias != nullptr) {
      const Pack bias = load_pack(a.bias, at, columns);
      for (int i = 0; i < pack_elements; ++i) x.values[i] += bias.values[i];
    }
    store_pack(x, a.out + row * columns, at, columns);
  });
  if (lane_of_warp() != 0) return;
  if (a.mean != nullptr) a.mean[row] = mean;
  a.inverse_deviation[row] = inverse;
}

template <class T>
__global__ void __launch_bounds__(threads) norm_backward_kernel(LayerNormBackward<T> a) {
  const std::int64_t row = row_of_warp(), columns = a.channels;
  if (row >= a.rows) return;
  const T *dout = a.dout + row * columns, *in = a.in + row * columns;
  const bool centred = a.mean != nullptr;
  const float mean = centred ? a.mean[row] : 0.0f, inverse = a.inverse_deviation[row];
  float average = 0, slope = 0;
  for_packs(lane_of_warp(), warp_lanes, columns, [&](std::int64_t at) {
    const Pack d = load_pack(dout, at, columns), x = load_pack(in, at, columns),
               weight = load_pack(a.weight, at, columns);
    for (int i = 0; i < pack_elements; ++i) {  // beyond the row's end the weight is zero
      const float scaled = d.values[i] * weight.values[i];
      average += scaled;
      slope += scaled * ((x.values[i] - mean) * inverse);
    }
  });
  average = centred ? warp_sum(average) / static_cast<float>(columns) : 0.0f;
  slope = warp_sum(slope) / static_cast<float>(columns);
  T* din = a.din + row * columns;
  for_packs(lane_of_warp(), warp_lanes, columns, [&](std::int64_t at) {
    const Pack d = load_pack(dout, at, columns), x = load_pack(in, at, columns),
               weight = load_pack(a.weight, at, columns);
    Pack sum = load_pack(din, at, columns);
    for (int i = 0; i < pack_elements; ++i) {
      const float normal = (x.values[i] - mean) * inverse;
      sum.values[i] += (d.values[i] * weight.values[i] - average - normal * slope) * inverse;
    }
    store_pack(sum, din, at, columns);
  });
}

// Sums over rows go in two passes: `parts` ranges of rows by themselves, then the parts in order.
constexpr std::int64_t most_parts = 128, least_rows_of_part = 16;
constexpr int column_threads = 128;

std::int64_t parts_of(std::int64_t rows) {
  const std::int64_t parts = rows / least_rows_of_part;
  return parts < 1 ? 1 : parts < most_parts ? parts : most_parts;
}

// What a row adds to the columns of its sums; the second kind is dbias.
template <class T>
struct NormTerms {
  LayerNormBackward<T> a;
  __device__ void add(std::int64_t row, std::int64_t column, float (&sums)[2]) const {
    const std::int64_t at = row * a.channels + column;
    const float d = zero::to_float(a.dout[at]), x = zero::to_float(a.in[at]);
    const float mean = a.mean == nullptr ? 0.0f : a.mean[row];
    sums[0] += d * ((x - mean) * a.inverse_deviation[row]);
    sums[1] += d;
  }
};

template <class T>
struct ColumnTerms {
  ColumnSum<T> a;
  __device__ void add(std::int64_t row, std::int64_t column, float (&sums)[2]) const {
    sums[0] += zero::to_float(a.in[row * a.columns + column]);
  }
};

struct Columns {
  std::int64_t rows, columns, parts;
  int kinds;       // of sums
  float* partial;  // [parts, kinds, columns]
};

// A block per part and strip of columns.
template <class Terms>
__global__ void __launch_bounds__(column_threads) column_parts_kernel(Terms terms, Columns c) {
  const std::int64_t column = std::int64_t{blockIdx.x} * column_threads + threadIdx.x;
  const std::int64_t part = blockIdx.y;
  if (column >= c.columns) return;
  float sums[2] = {};
  const std::int64_t end = c.rows * (part + 1) / c.parts;
  for (std::int64_t row = c.rows * part / c.parts; row < end; ++row) terms.add(row, column, sums);
  for (int kind = 0; kind < c.kinds; ++kind)
    c.partial[(part * c.kinds + kind) * c.columns + column] = sums[kind];
}

template <class T>
__global__ void __launch_bounds__(column_threads) add_parts_kernel(Columns c, T* first, T* second) {
  const std::int64_t column = std::int64_t{blockIdx.x} * column_threads + threadIdx.x;
  if (column >= c.columns) return;
  for (int kind = 0; kind < c.kinds; ++kind) {
    float sum = 0;
    for (std::int64_t part = 0; part < c.parts; ++part)
      sum += c.partial[(part * c.kinds + kind) * c.columns + column];
    T& to = (kind == 0 ? first : second)[column];
    to = zero::from_float<T>(zero::to_float(to) + sum);
  }
}

template <class T, class Terms>
void sum_columns(const Terms& terms, const Columns& c, T* first, T* second, cudaStream_t stream) {
  const unsigned strips = blocks_of(c.columns, column_threads);
  launch(Launch{"column_parts_kernel", dim3(strips, static_cast<unsigned>(c.parts)), column_threads,
                stream},
         column_parts_kernel<Terms>, terms, c);
  launch(Launch{"add_parts_kernel", dim3(strips), column_threads, stream}, add_parts_kernel<T>, c,
         first, second);
}

// gelu(x) = x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3), as on the CPU.
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

template <class T>
__global__ void __launch_bounds__(threads)
    swiglu_forward_kernel(SwigluForward<T> a, std::int64_t count) {
  const std::int64_t at = pack_of_thread();
  if (at >= count) return;
  Pack x = load_pack(a.gate, at, count);
  const Pack up = load_pack(a.up, at, count);
  for (int i = 0; i < pack_elements; ++i)
    x.values[i] = x.values[i] * sigmoid(x.values[i]) * up.values[i];
  store_pack(x, a.out, at, count);
}

template <class T>
__global__ void __launch_bounds__(threads)
    swiglu_backward_kernel(SwigluBackward<T> a, std::int64_t count) {
  const std::int64_t at = pack_of_thread();
  if (at >= count) return;
  const Pack gate = load_pack(a.gate, at, count), up = load_pack(a.up, at, count);
  Pack d = load_pack(a.gradient, at, count), dgate = d;
  for (int i = 0; i < pack_elements; ++i) {
    const float x = gate.values[i], s = sigmoid(x);
    dgate.values[i] = d.values[i] * up.values[i] * (s + x * s * (1 - s));
    d.values[i] *= x * s;
  }
  store_pack(dgate, a.dgate, at, count);
  store_pack(d, a.gradient, at, count);
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

// A thread per pair of channels, neighbours side by side.
template <class T>
__global__ void __launch_bounds__(threads) rotate_kernel(Rotation<T> a, std::int64_t pairs) {
  const std::int64_t pair = std::int64_t{blockIdx.x} * threads + threadIdx.x;
  if (pair >= pairs) return;
  const std::int64_t half = a.channels / 2, i = pair % half, head = pair / half;  // of all rows
  const std::int64_t angle = head / a.heads % a.sequence * half + i;
  T& first = a.data[head * a.channels + i];
  T& second = a.data[head * a.channels + half + i];
  const float x = zero::to_float(first), y = zero::to_float(second);
  const float cosine = a.cosines[angle], sine = a.direction * a.sines[angle];
  first = zero::from_float<T>(x * cosine - y * sine);
  second = zero::from_float<T>(y * cosine + x * sine);
}

}  // namespace

template <class T>
void embed_forward(const EmbedForward<T>& call, std::int64_t rows, cudaStream_t stream) {
  launch(warp_per_row("embed_forward_kernel", rows, stream), embed_forward_kernel<T>, call, rows);
}

template <class T>
void embed_backward(const EmbedBackward<T>& call, cudaStream_t stream) {
  launch(Launch{"embed_tokens_kernel", dim3(static_cast<unsigned>(call.rows)), threads, stream},
         embed_tokens_kernel<T>, call);
  if (call.dposition_table != nullptr)
    launch(warp_per_row("embed_positions_kernel", call.sequence, stream), embed_positions_kernel<T>,
           call);
}

template <class T>
void norm_forward(const LayerNormForward<T>& call, std::int64_t rows, cudaStream_t stream) {
  launch(warp_per_row("norm_forward_kernel", rows, stream), norm_forward_kernel<T>, call, rows);
}

template <class T>
void norm_backward(const LayerNormBackward<T>& call, cudaStream_t stream) {
  launch(warp_per_row("norm_backward_kernel", call.rows, stream), norm_backward_kernel<T>, call);
}

std::int64_t column_scratch(std::int64_t rows, std::int64_t columns) {
  return parts_of(rows) * columns;
}

template <class T>
void norm_parameters(const LayerNormBackward<T>& call, float* scratch, cudaStream_t stream) {
  const Columns columns{call.rows, call.channels, parts_of(call.rows),
                        call.dbias == nullptr ? 1 : 2, scratch};
  sum_columns(NormTerms<T>{call}, columns, call.dweight, call.dbias, stream);
}

template <class T>
void column_sum(const ColumnSum<T>& call, float* scratch, cudaStream_t stream) {
  const Columns columns{call.rows, call.columns, parts_of(call.rows), 1, scratch};
  sum_columns(ColumnTerms<T>{call}, columns, call.out, call.out, stream);
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
void swiglu_forward(const SwigluForward<T>& call, std::int64_t count, cudaStream_t stream) {
  launch(thread_per_pack("swiglu_forward_kernel", count, stream), swiglu_forward_kernel<T>, call,
         count);
}

template <class T>
void swiglu_backward(const SwigluBackward<T>& call, std::int64_t count, cudaStream_t stream) {
  launch(thread_per_pack("swiglu_backward_kernel", count, stream), swiglu_backward_kernel<T>, call,
         count);
}

template <class T>
void add(const T* a, const T* b, T* out, std::int64_t count, cudaStream_t stream) {
  launch(thread_per_pack("add_kernel", count, stream), add_kernel<T>, a, b, out, count);
}

template <class T>
void rotate(const Rotation<T>& call, std::int64_t rows, cudaStream_t stream) {
  const std::int64_t pairs = rows * call.heads * (call.channels / 2);
  launch(Launch{"rotate_kernel", dim3(blocks_of(pairs, threads)), threads, stream},
         rotate_kernel<T>, call, pairs);
}

#define GPT_INSTANTIATE(T)                                                             \
  template void embed_forward(const EmbedForward<T>&, std::int64_t, cudaStream_t);     \
  template void embed_backward(const EmbedBackward<T>&, cudaStream_t);                 \
  template void norm_forward(const LayerNormForward<T>&, std::int64_t, cudaStream_t);  \
  template void norm_backward(const LayerNormBackward<T>&, cudaStream_t);              \
  template void norm_parameters(const LayerNormBackward<T>&, float*, cudaStream_t);    \
  template void column_sum(const ColumnSum<T>&, float*, cudaStream_t);                 \
  template void gelu_forward(const T*, T*, std::int64_t, cudaStream_t);                \
  template void gelu_backward(const T*, T*, std::int64_t, cudaStream_t);               \
  template void swiglu_forward(const SwigluForward<T>&, std::int64_t, cudaStream_t);   \
  template void swiglu_backward(const SwigluBackward<T>&, std::int64_t, cudaStream_t); \
  template void add(const T*, const T*, T*, std::int64_t, cudaStream_t);               \
  template void rotate(const Rotation<T>&, std::int64_t, cudaStream_t);
GPT_INSTANTIATE(float)
GPT_INSTANTIATE(zero::bf16)
GPT_INSTANTIATE(zero::fp16)
#undef GPT_INSTANTIATE

}  // namespace gpt::cuda
