// LayerNorm and RMSNorm, and sums over rows: for norms' parameters and linears' biases.
#include "examples/gpt/cuda/row_kernels.h"
#include "examples/gpt/cuda/rows.cuh"

namespace gpt::cuda {
namespace {

// Returns the sum over a row of term(at, i), one term per element of each pack.
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

// Sums over rows take two passes: first within `parts` ranges of rows, then over all parts. A block
// of the first pass has the rows of a part and a strip of columns.
constexpr std::int64_t most_parts = 512, least_rows_of_part = 16;
constexpr int norm_strip = threads, bias_strip = warp_lanes;  // in packs
constexpr int columns_of_block = 4 * warp_lanes;              // in the second pass
constexpr int tile_rows = 16;

std::int64_t parts_of(std::int64_t rows) {
  const std::int64_t parts = rows / least_rows_of_part;
  return parts < 1 ? 1 : parts < most_parts ? parts : most_parts;
}
struct Columns {
  std::int64_t rows, columns, parts;
  int kinds;       // number of sums
  float* partial;  // [parts, kinds, distance()]

  __device__ std::int64_t distance() const { return packs_of(columns) * pack_elements; }
  __device__ std::int64_t first_row(std::int64_t part) const { return rows * part / parts; }
};

// A thread's share of its block's rows and columns: threads form groups as wide as the strip, a
// group has every groups-th row, and each thread a pack of columns. Some threads may have nothing.
struct Share {
  int packs, groups, group;
  std::int64_t at;

  __device__ Share(std::int64_t columns, int strip) {
    const std::int64_t left = packs_of(columns) - std::int64_t{blockIdx.x} * strip;
    packs = left < strip ? static_cast<int>(left) : strip;
    groups = threads / packs;
    group = static_cast<int>(threadIdx.x) / packs;
    at = (std::int64_t{blockIdx.x} * strip + static_cast<int>(threadIdx.x) % packs) * pack_elements;
  }
  __device__ bool is_empty() const { return group >= groups; }
};

// Adds up the sums of a block's groups in order, and stores the result. All threads must call.
__device__ void store_part(const Share& share, const Pack& sums, int kind, const Columns& c) {
  __shared__ float all[threads * pack_elements];
  __syncthreads();
  for (int i = 0; i < pack_elements; ++i) all[i * threads + threadIdx.x] = sums.values[i];
  __syncthreads();
  if (share.group != 0) return;
  Pack total{};
  for (int group = 0; group < share.groups; ++group)
    for (int i = 0; i < pack_elements; ++i)
      total.values[i] += all[i * threads + group * share.packs + threadIdx.x];
  const std::int64_t row = std::int64_t{blockIdx.y} * c.kinds + kind;
  store_whole(total, c.partial + row * c.distance() + share.at);
}

// Values of a whole row that the input's gradient needs.
struct RowTerms {
  float mean, inverse, average, slope;
};

template <class T>
__device__ RowTerms terms_of_row(const LayerNormBackward<T>& a, std::int64_t row) {
  const std::int64_t columns = a.channels;
  const T *dout = a.dout + row * columns, *in = a.in + row * columns;
  const bool centred = a.mean != nullptr;
  RowTerms terms{centred ? a.mean[row] : 0.0f, a.inverse_deviation[row], 0, 0};
  for_packs(lane_of_warp(), warp_lanes, columns, [&](std::int64_t at) {
    const Pack d = load_pack(dout, at, columns), x = load_pack(in, at, columns),
               weight = load_pack(a.weight, at, columns);
    for (int i = 0; i < pack_elements; ++i) {  // the weight is zero after the row's end
      const float scaled = d.values[i] * weight.values[i];
      terms.average += scaled;
      terms.slope += scaled * ((x.values[i] - terms.mean) * terms.inverse);
    }
  });
  const float average = warp_sum(terms.average), slope = warp_sum(terms.slope);
  terms.average = centred ? average / static_cast<float>(columns) : 0.0f;
  terms.slope = slope / static_cast<float>(columns);
  return terms;
}

// Processes some rows at a time: a warp finds the terms of each row, then threads work on columns
// of these rows, which are in a cache by then.
template <class T>
__global__ void __launch_bounds__(threads) norm_backward_kernel(LayerNormBackward<T> a, Columns c) {
  __shared__ RowTerms rows[tile_rows];
  const Share share(c.columns, norm_strip);
  Pack weight{}, dweight{}, dbias{};
  if (!share.is_empty()) weight = load_pack(a.weight, share.at, c.columns);
  const std::int64_t end = c.first_row(blockIdx.y + 1);
  for (std::int64_t first = c.first_row(blockIdx.y); first < end; first += tile_rows) {
    const int count = end - first < tile_rows ? static_cast<int>(end - first) : tile_rows;
    __syncthreads();
    for (int i = warp_of_block(); i < count; i += warps) {
      const RowTerms terms = terms_of_row(a, first + i);
      if (lane_of_warp() == 0) rows[i] = terms;
    }
    __syncthreads();
    if (share.is_empty()) continue;
    for (int i = share.group; i < count; i += share.groups) {
      const RowTerms row = rows[i];
      const std::int64_t begin = (first + i) * c.columns;
      const Pack d = load_pack(a.dout + begin, share.at, c.columns),
                 x = load_pack(a.in + begin, share.at, c.columns);
      Pack sum = load_pack(a.din + begin, share.at, c.columns);
      for (int k = 0; k < pack_elements; ++k) {
        const float normal = (x.values[k] - row.mean) * row.inverse;
        sum.values[k] +=
            (d.values[k] * weight.values[k] - row.average - normal * row.slope) * row.inverse;
        dweight.values[k] += d.values[k] * normal;
        dbias.values[k] += d.values[k];
      }
      store_pack(sum, a.din + begin, share.at, c.columns);
    }
  }
  store_part(share, dweight, 0, c);
  if (c.kinds > 1) store_part(share, dbias, 1, c);
}

template <class T>
__global__ void __launch_bounds__(threads) column_parts_kernel(ColumnSum<T> a, Columns c) {
  const Share share(c.columns, bias_strip);
  Pack sum{};
  const std::int64_t end = c.first_row(blockIdx.y + 1);
  if (!share.is_empty())
    for (std::int64_t row = c.first_row(blockIdx.y) + share.group; row < end; row += share.groups) {
      const Pack more = load_pack(a.in + row * c.columns, share.at, c.columns);
      for (int i = 0; i < pack_elements; ++i) sum.values[i] += more.values[i];
    }
  store_part(share, sum, 0, c);
}

// Each warp adds up every warps-th part, then one thread per column adds the warps' sums.
template <class T>
__global__ void __launch_bounds__(threads) add_parts_kernel(Columns c, T* first, T* second) {
  __shared__ float all[warps * columns_of_block];
  const int kind = static_cast<int>(blockIdx.y), own = warp_of_block() * columns_of_block;
  const std::int64_t block = std::int64_t{blockIdx.x} * columns_of_block,
                     column = block + 4 * lane_of_warp();
  Aligned<float> sum{};
  if (column < c.columns)
    for (std::int64_t part = warp_of_block(); part < c.parts; part += warps) {
      const float* from = c.partial + (part * c.kinds + kind) * c.distance() + column;
      const auto more = *reinterpret_cast<const Aligned<float>*>(from);
      for (int i = 0; i < 4; ++i) sum.values[i] += more.values[i];
    }
  for (int i = 0; i < 4; ++i) all[own + 4 * lane_of_warp() + i] = sum.values[i];
  __syncthreads();
  if (threadIdx.x >= columns_of_block || block + threadIdx.x >= c.columns) return;
  float total = 0;
  for (int warp = 0; warp < warps; ++warp) total += all[warp * columns_of_block + threadIdx.x];
  T& to = (kind == 0 ? first : second)[block + threadIdx.x];
  to = zero::from_float<T>(zero::to_float(to) + total);
}

Launch parts_launch(const char* name, const Columns& c, int strip, cudaStream_t stream) {
  return {name, dim3(blocks_of(packs_of(c.columns), strip), static_cast<unsigned>(c.parts)),
          threads, stream};
}

template <class T>
void add_parts(const Columns& c, T* first, T* second, cudaStream_t stream) {
  launch(Launch{"add_parts_kernel",
                dim3(blocks_of(c.columns, columns_of_block), static_cast<unsigned>(c.kinds)),
                threads, stream},
         add_parts_kernel<T>, c, first, second);
}

}  // namespace

template <class T>
void norm_forward(const LayerNormForward<T>& call, std::int64_t rows, cudaStream_t stream) {
  launch(warp_per_row("norm_forward_kernel", rows, stream), norm_forward_kernel<T>, call, rows);
}

std::int64_t column_scratch(std::int64_t rows, std::int64_t columns) {
  return parts_of(rows) * (columns + 2 * pack_elements);
}

template <class T>
void norm_backward(const LayerNormBackward<T>& call, float* scratch, cudaStream_t stream) {
  const Columns columns{call.rows, call.channels, parts_of(call.rows),
                        call.dbias == nullptr ? 1 : 2, scratch};
  launch(parts_launch("norm_backward_kernel", columns, norm_strip, stream), norm_backward_kernel<T>,
         call, columns);
  add_parts(columns, call.dweight, call.dbias, stream);
}

template <class T>
void column_sum(const ColumnSum<T>& call, float* scratch, cudaStream_t stream) {
  const Columns columns{call.rows, call.columns, parts_of(call.rows), 1, scratch};
  launch(parts_launch("column_parts_kernel", columns, bias_strip, stream), column_parts_kernel<T>,
         call, columns);
  add_parts(columns, call.out, call.out, stream);
}

#define GPT_INSTANTIATE(T)                                                            \
  template void norm_forward(const LayerNormForward<T>&, std::int64_t, cudaStream_t); \
  template void norm_backward(const LayerNormBackward<T>&, float*, cudaStream_t);     \
  template void column_sum(const ColumnSum<T>&, float*, cudaStream_t);
GPT_INSTANTIATE(float)
GPT_INSTANTIATE(zero::bf16)
GPT_INSTANTIATE(zero::fp16)
#undef GPT_INSTANTIATE

}  // namespace gpt::cuda
