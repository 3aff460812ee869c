#include "comm/wire/codec.h"

#include <algorithm>
#include <cmath>

#include "comm/bytes.h"
#include "comm/grouped_piece.h"
#include "comm/wire/cpu/kernels.h"
#include "comm/wire/device_codec.h"
#include "comm/wire/layout.h"
#include "zero/base/error.h"

namespace zero::comm::wire {
namespace {

void fill_with_zeros(std::uint8_t* from, std::int64_t bytes) {
  std::fill_n(from + bytes, filled(bytes) - bytes, std::uint8_t{0});
}

// Zeros the bytes after the codes and after the scales.
void zero_padding(const Codec& codec, std::int64_t count, void* encoded) {
  const Encoded whole = encoded_at(codec, encoded, count);
  fill_with_zeros(whole.codes, code_bytes(codec.format, count));
  fill_with_zeros(static_cast<std::uint8_t*>(whole.scales),
                  block_count(codec, count) * scale_bytes(codec.format));
}

// Adds n elements of a source, from `first` on, to the sum, or begins the sum.
void add_source(const Codec& codec, const std::byte* source, std::int64_t count, std::int64_t first,
                std::int64_t n, bool begins, float* sum) {
  if (codec.format == Format::none) {
    const auto* values = reinterpret_cast<const float*>(source) + first;
    for (std::int64_t i = 0; i < n; ++i) sum[i] = begins ? values[i] : sum[i] + values[i];
    return;
  }
  const Encoded part = encoded_at(codec, source, count, first);
  if (begins)
    kernels().decode(codec, part, n, sum, DType::fp32);
  else
    kernels().decode_add(codec, part, n, sum);
}

// Encodes n elements from `first` on; `first` starts a block.
void encode_piece(const Codec& codec, const Elements& from, std::int64_t first, std::int64_t n,
                  const Encoded& to) {
  kernels().encode(codec, at(from.data, first * size_of(from.dtype)), from.dtype, n, to);
}

void add_errors(const void* values, DType dtype, const float* decoded, std::int64_t n,
                ErrorSums& errors) {
  float sums[2];
  kernels().compare(values, dtype, decoded, n, sums);
  if (!std::isfinite(sums[0]) || !std::isfinite(sums[1])) return;
  errors.difference += static_cast<double>(sums[0]);
  errors.values += static_cast<double>(sums[1]);
}

// Encodes in pieces of whole blocks, small enough for the first-level cache.
void encode_and_compare(const Codec& codec, const Elements& from, void* encoded) {
  const std::int64_t tile = largest_block / codec.block * codec.block;
  alignas(64) float decoded[largest_block];
  for (std::int64_t first = 0; first < from.count; first += tile) {
    const std::int64_t n = std::min(tile, from.count - first);
    const Encoded to = encoded_at(codec, encoded, from.count, first);
    encode_piece(codec, from, first, n, to);
    kernels().decode(codec, to, n, decoded, DType::fp32);
    add_errors(at(from.data, first * size_of(from.dtype)), from.dtype, decoded, n,
               *from.errors.sums);
  }
}

}  // namespace

void check_elements(DType dtype) {
  if (dtype == DType::int64)
    throw UsageError("wire formats are for elements in fp32, bf16 and fp16, not int64");
}

void encode(const Codec& codec, const Elements& from, void* encoded, Stream) {
  check_elements(from.dtype);
  if (codec.format == Format::none) {
    const std::int64_t bytes = from.count * size_of(from.dtype);
    copy_bytes(encoded, from.data, bytes);
    return fill_with_zeros(static_cast<std::uint8_t*>(encoded), bytes);
  }
  if (from.errors.sums != nullptr)
    encode_and_compare(codec, from, encoded);
  else
    encode_piece(codec, from, 0, from.count, encoded_at(codec, encoded, from.count));
  zero_padding(codec, from.count, encoded);
}

void decode(const Codec& codec, const void* encoded, std::int64_t count, void* to, DType dtype,
            Stream) {
  check_elements(dtype);
  if (codec.format == Format::none) return copy_bytes(to, encoded, count * size_of(dtype));
  kernels().decode(codec, encoded_at(codec, encoded, count), count, to, dtype);
}

void decode_sum(const Codec& codec, const Sources& sources, const ReduceGroups& groups,
                std::int64_t count, void* to, DType dtype, Stream) {
  check_elements(dtype);
  GroupedPiece<largest_block> sums;
  const std::int64_t tile = largest_block / codec.block * codec.block;
  for (std::int64_t first = 0; first < count; first += tile) {
    const std::int64_t n = std::min(tile, count - first);
    const void* sum = sums.sum(
        sources.count, n, [&](int source) { return groups.ending_with(source); },
        [&](int begin, int end, float* total) {
          for (int s = begin; s < end; ++s)
            add_source(codec, at(sources.first, s * sources.stride), count, first, n, s == begin,
                       total);
        },
        [](float*) {});
    kernels().sum(&sum, 1, DType::fp32, 0, n, at(to, first * size_of(dtype)), dtype);
  }
}

const DeviceCodec host_codec{encode, decode, decode_sum};

}  // namespace zero::comm::wire
