// Codecs on the GPU. A warp encodes a block: passes over the elements find the maximum and then
// write codes, while the elements stay in the cache; a lane takes two elements at a time, since
// these fill a byte in int4. Compiled without contraction.
#include <cuda_runtime.h>

#include <algorithm>
#include <limits>

#include "comm/cuda/lane.cuh"
#include "comm/wire/block_codes.h"
#include "comm/wire/cuda/decoder.cuh"
#include "comm/wire/cuda/error_kernels.cuh"
#include "comm/wire/cuda/launches.cuh"
#include "comm/wire/device_codec.h"
#include "comm/wire/layout.h"
#include "zero/base/cuda/call.h"
#include "zero/base/cuda/cuda_stream.h"

namespace zero::comm::wire {
namespace {

using comm::cuda::Lane;

struct Size {
  std::int64_t count, block;
};

// Padding that the kernels write after codes and scales.
struct Padding {
  std::uint8_t *codes_end, *scales_end;
  int after_codes, after_scales;
};

Padding padding_of(const Codec& codec, std::int64_t count, void* encoded) {
  const Encoded whole = encoded_at(codec, encoded, count);
  const std::int64_t codes = code_bytes(codec.format, count);
  const std::int64_t scales = block_count(codec, count) * scale_bytes(codec.format);
  return {whole.codes + codes, static_cast<std::uint8_t*>(whole.scales) + scales,
          static_cast<int>(filled(codes) - codes), static_cast<int>(filled(scales) - scales)};
}

__device__ void write_padding(const Padding& padding) {
  if (blockIdx.x != 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < padding.after_codes) padding.codes_end[thread] = 0;
  if (thread < padding.after_scales) padding.scales_end[thread] = 0;
}

__device__ std::uint32_t magnitude_of(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}

__device__ std::uint32_t largest_of_warp(std::uint32_t own) {
  for (int apart = lanes / 2; apart > 0; apart /= 2)
    own = max(own, __shfl_xor_sync(~0u, own, apart));
  return own;
}

// Calls body(first element, elements) for this lane's pairs of [begin, end).
template <class Body>
__device__ void for_pairs(std::int64_t begin, std::int64_t end, const Body& body) {
  for (std::int64_t i = begin + 2 * (threadIdx.x % lanes); i < end; i += 2 * lanes)
    body(i, i + 1 < end ? 2 : 1);
}

// Writes n codes, 1 or 2, from element i on; i is even.
template <class F>
__device__ void write_codes(std::uint8_t* codes, std::int64_t i, const std::uint8_t* own, int n) {
  if constexpr (F::bits == 4) {
    codes[i / 2] = static_cast<std::uint8_t>(n == 2 ? own[0] | own[1] << 4 : own[0]);
  } else {
    for (int k = 0; k < n; ++k) codes[i + k] = own[k];
  }
}

// Codes and scale of a block, or zeros and a NaN scale.
template <class F>
struct BlockEncoder {
  typename F::Scale scale;
  Scaling scaling;
  bool finite;

  __device__ explicit BlockEncoder(std::uint32_t largest)
      : scale(F::scale_of(largest)), scaling(F::scaling(scale)), finite(largest < infinity_bits) {}
  __device__ std::uint8_t code(float value) const {
    return finite ? F::code(value * scaling.first * scaling.second) : std::uint8_t{0};
  }
  __device__ void write_scale(const Encoded& to, std::int64_t block) const {
    if (threadIdx.x % lanes == 0) static_cast<typename F::Scale*>(to.scales)[block] = scale;
  }
};

// Returns the encoder for value(i) of the elements [begin, end).
template <class F, class Value>
__device__ BlockEncoder<F> encoder_of(std::int64_t begin, std::int64_t end, const Value& value) {
  std::uint32_t largest = 0;
  for_pairs(begin, end, [&](std::int64_t i, int n) {
    for (int k = 0; k < n; ++k) largest = max(largest, magnitude_of(value(i + k)));
  });
  return BlockEncoder<F>(largest_of_warp(largest));
}
template <class F, class Value>
__device__ void write_block(const BlockEncoder<F>& encoder, std::int64_t begin, std::int64_t end,
                            const Encoded& to, std::int64_t block, const Value& value) {
  for_pairs(begin, end, [&](std::int64_t i, int n) {
    std::uint8_t codes[2];
    for (int k = 0; k < n; ++k) codes[k] = encoder.code(value(i + k));
    write_codes<F>(to.codes, i, codes, n);
  });
  encoder.write_scale(to, block);
}

// Calls body(block, begin, end) for this warp's blocks.
template <class Body>
__device__ void for_blocks(const Size& size, const Body& body) {
  const std::int64_t warps = std::int64_t{gridDim.x} * threads / lanes;
  std::int64_t block = (std::int64_t{blockIdx.x} * threads + threadIdx.x) / lanes;
  for (; block * size.block < size.count; block += warps)
    body(block, block * size.block, min((block + 1) * size.block, size.count));
}

template <class F, class T>
__global__ void __launch_bounds__(threads)
    encode_kernel(const T* from, Size size, Encoded to, Padding padding) {
  write_padding(padding);
  for_blocks(size, [&](std::int64_t block, std::int64_t begin, std::int64_t end) {
    const auto value = [&](std::int64_t i) { return to_float(from[i]); };
    write_block(encoder_of<F>(begin, end, value), begin, end, to, block, value);
  });
}

template <class T>
__global__ void __launch_bounds__(threads)
    round_kernel(const T* from, std::int64_t count, bf16* to, Padding padding) {
  write_padding(padding);
  for_elements(count, [&](std::int64_t i) { to[i] = from_float<bf16>(to_float(from[i])); });
}

// Writes lane(i) to whole lanes of `to`, and element(i) to the remaining elements, or to all if
// `to` is not aligned.
template <class T, class LaneAt, class ElementAt>
__device__ void write_lanes(T* to, std::int64_t count, const LaneAt& lane, const ElementAt& element) {
  const std::int64_t in_lanes = zero::cuda::is_aligned(to) ? count / Lane::size * Lane::size : 0;
  for_elements(in_lanes / Lane::size, [&](std::int64_t number) {
    zero::cuda::store_lane(lane(number * Lane::size).values, to + number * Lane::size);
  });
  for_elements(count - in_lanes, [&](std::int64_t i) {
    to[in_lanes + i] = from_float<T>(element(in_lanes + i));
  });
}

template <class F, class T>
__global__ void __launch_bounds__(threads)
    decode_kernel(Decoder<F> from, std::int64_t count, T* to) {
  write_lanes(to, count, [&](std::int64_t i) { return from.lane(i); }, from);
}

// Sources are `stride` bytes apart.
struct SumOrder {
  std::int64_t stride;
  int sources;
  ReduceGroups groups;
};

template <class F, class T>
__global__ void __launch_bounds__(threads)
    sum_kernel(Decoder<F> first, SumOrder order, std::int64_t count, T* to) {
  const auto source = [&](int s) {
    Decoder<F> from = first;
    from.from.codes += s * order.stride;
    from.from.scales = static_cast<std::uint8_t*>(from.from.scales) + s * order.stride;
    return from;
  };
  const auto exact = [](const auto& sum) { return sum; };
  write_lanes(
      to, count,
      [&](std::int64_t i) {
        const auto lane = [&](int s) { return source(s).lane(i); };
        return grouped_sum(order.groups, 0, order.sources, lane, exact);
      },
      [&](std::int64_t i) {
        const auto element = [&](int s) { return source(s)(i); };
        return grouped_sum(order.groups, 0, order.sources, element, exact);
      });
}

// Calls body<F>() with the type of a format; `none` is fp32.
template <class Body>
void with_format(Format format, const Body& body) {
  if (format == Format::none) return body.template operator()<float>();
  if (format == Format::bf16) return body.template operator()<bf16>();
  with_block_format(format, body);
}

template <class F>
concept HasBlocks = requires {
  typename F::Scale;
};

void copy(const Elements& from, void* encoded, Stream stream) {
  const auto bytes = static_cast<std::size_t>(from.count * size_of(from.dtype));
  const auto all = static_cast<std::size_t>(filled(from.count * size_of(from.dtype)));
  if (bytes == 0) return;
  zero::cuda::copy_async(encoded, from.data, bytes, native(stream));
  zero::cuda::call_cuda("cudaMemsetAsync", cudaMemsetAsync,
                        static_cast<std::uint8_t*>(encoded) + bytes, 0, all - bytes,
                        native(stream));
}

template <class F, class T>
void encode_as(const Codec& codec, const Elements& from, const T* elements, void* encoded,
               Stream stream) {
  const Padding padding = padding_of(codec, from.count, encoded);
  const Encoded to = encoded_at(codec, encoded, from.count);
  const std::int64_t blocks = block_count(codec, from.count);
  const Size size{from.count, codec.block};
  if constexpr (!HasBlocks<F>)
    launch(over_warps("round_kernel", (from.count + lanes - 1) / lanes, stream), round_kernel<T>,
           elements, from.count, reinterpret_cast<bf16*>(to.codes), padding);
  else
    launch(over_warps("encode_kernel", blocks, stream), encode_kernel<F, T>, elements, size, to,
           padding);
  if (from.errors.sums != nullptr)
    launch_errors(elements, Decoder<F>(to, codec.block), from, stream);
}

void encode_on_gpu(const Codec& codec, const Elements& from, void* encoded, Stream stream) {
  if (codec.format == Format::none) return copy(from, encoded, stream);
  if (from.count == 0) return;
  check_elements(from.dtype);
  with_float_type(from.dtype, [&]<class T>() {
    with_format(codec.format, [&]<class F>() {
      encode_as<F>(codec, from, static_cast<const T*>(from.data), encoded, stream);
    });
  });
}

void decode_on_gpu(const Codec& codec, const void* encoded, std::int64_t count, void* to,
                   DType dtype, Stream stream) {
  if (count == 0) return;
  if (codec.format == Format::none)
    return zero::cuda::copy_async(to, encoded, static_cast<std::size_t>(count * size_of(dtype)),
                                  native(stream));
  check_elements(dtype);
  with_float_type(dtype, [&]<class T>() {
    with_format(codec.format, [&]<class F>() {
      launch(over_lanes("decode_kernel", count, stream), decode_kernel<F, T>,
             Decoder<F>(encoded_at(codec, encoded, count), codec.block), count,
             static_cast<T*>(to));
    });
  });
}

void decode_sum_on_gpu(const Codec& codec, const Sources& sources, const ReduceGroups& groups,
                       std::int64_t count, void* to, DType dtype, Stream stream) {
  if (count == 0) return;
  const SumOrder order{sources.stride, sources.count, groups};
  check_elements(dtype);
  with_float_type(dtype, [&]<class T>() {
    with_format(codec.format, [&]<class F>() {
      launch(over_lanes("sum_kernel", count, stream), sum_kernel<F, T>,
             Decoder<F>(encoded_at(codec, sources.first, count), codec.block), order, count,
             static_cast<T*>(to));
    });
  });
}

}  // namespace

const DeviceCodec& cuda_codec() {
  static constexpr DeviceCodec codec{encode_on_gpu, decode_on_gpu, decode_sum_on_gpu};
  return codec;
}

}  // namespace zero::comm::wire
