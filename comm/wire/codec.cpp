#include "comm/wire/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "comm/bytes.h"
#include "comm/wire/cpu/kernels.h"
#include "comm/wire/layout.h"
#include "zero/base/error.h"

namespace zero::comm::wire {
namespace {

void fill_with_zeros(std::uint8_t* from, std::int64_t bytes) {
  std::fill_n(from + bytes, filled(bytes) - bytes, std::uint8_t{0});
}

// Where the codes and the scales end.
void zero_padding(const Codec& codec, std::int64_t count, void* encoded) {
  const Encoded whole = encoded_at(codec, encoded, count);
  fill_with_zeros(whole.codes, code_bytes(codec.format, count));
  fill_with_zeros(static_cast<std::uint8_t*>(whole.scales),
                  block_count(codec, count) * scale_bytes(codec.format));
}

// Sums in tiles that stay in the first-level cache.
class OrderedSum {
 public:
  OrderedSum(const Codec& codec, const Sources& sources, const ReduceGroups& groups,
             std::int64_t count)
      : codec_(codec), sources_(sources), groups_(groups), count_(count) {}

  // Elements [first, first + n) to total().
  void add_up(std::int64_t first, std::int64_t n) {
    add_groups({0, sources_.count}, ReduceGroups::most_levels, first, n, total_);
  }
  const float* total() const { return total_; }

 private:
  struct Range {
    int begin, end;
  };

  // The sum over sources, which are groups of that level; 0: of single sources.
  void add_groups(const Range& range, int level, std::int64_t first, std::int64_t n, float* sum) {
    const int size = groups_.ranks_at(level, range.end - range.begin);
    for (int begin = range.begin; begin < range.end; begin += size) {
      const bool replaces = begin == range.begin;
      if (level == 0) {
        add_source(begin, first, n, replaces, sum);
        continue;
      }
      float* partial = replaces ? sum : partial_[level - 1];
      add_groups({begin, std::min(begin + size, range.end)}, level - 1, first, n, partial);
      for (std::int64_t i = 0; !replaces && i < n; ++i) sum[i] += partial[i];
    }
  }

  void add_source(int source, std::int64_t first, std::int64_t n, bool replaces, float* sum) {
    const std::byte* encoded = at(sources_.first, source * sources_.stride);
    if (codec_.format == Format::none) {
      const auto* values = reinterpret_cast<const float*>(encoded) + first;
      for (std::int64_t i = 0; i < n; ++i) sum[i] = replaces ? values[i] : sum[i] + values[i];
      return;
    }
    const Encoded part = encoded_at(codec_, encoded, count_, first);
    if (replaces)
      kernels().decode(codec_, part, n, sum, DType::fp32);
    else
      kernels().decode_add(codec_, part, n, sum);
  }

  const Codec& codec_;
  const Sources& sources_;
  const ReduceGroups& groups_;
  const std::int64_t count_;
  alignas(64) float total_[largest_block];
  alignas(64) float partial_[ReduceGroups::most_levels][largest_block];
};

void add_errors(const void* values, DType dtype, const float* decoded, std::int64_t n,
                ErrorSums& errors) {
  float sums[2];
  kernels().compare(values, dtype, decoded, n, sums);
  if (!std::isfinite(sums[0]) || !std::isfinite(sums[1])) return;
  errors.difference += static_cast<double>(sums[0]);
  errors.values += static_cast<double>(sums[1]);
}

}  // namespace

void check_elements(DType dtype) {
  if (dtype == DType::int64)
    throw UsageError("wire formats are for elements in fp32, bf16 and fp16, not int64");
}

void check_feedback(Format format) {
  if (format == Format::none || format == Format::bf16)
    throw UsageError(std::string("error feedback needs a format with blocks, which ") +
                     name_of(format) + " has not: take int4, int8, fp8_e4m3 or mxfp8");
}

std::int64_t encoded_bytes(const Codec& codec, std::int64_t count, DType dtype) {
  if (codec.format == Format::none) return filled(count * size_of(dtype));
  return filled(code_bytes(codec.format, count)) +
         filled(block_count(codec, count) * scale_bytes(codec.format));
}

std::int64_t residue_bytes(const Codec& codec, std::int64_t count) {
  return encoded_bytes(residue_codec(codec), count, DType::fp32);
}

Residue residue_at(const Codec& codec, void* residue, std::int64_t count, std::int64_t first) {
  const Encoded part = encoded_at(residue_codec(codec), residue, count, first);
  return {part.codes, static_cast<float*>(part.scales)};
}

void encode(const Codec& codec, const void* from, DType dtype, std::int64_t count, void* encoded) {
  check_elements(dtype);
  if (codec.format == Format::none) {
    const std::int64_t bytes = count * size_of(dtype);
    copy_bytes(encoded, from, bytes);
    return fill_with_zeros(static_cast<std::uint8_t*>(encoded), bytes);
  }
  kernels().encode(codec, from, dtype, count, encoded_at(codec, encoded, count));
  zero_padding(codec, count, encoded);
}

void decode(const Codec& codec, const void* encoded, std::int64_t count, void* to, DType dtype) {
  check_elements(dtype);
  if (codec.format == Format::none) return copy_bytes(to, encoded, count * size_of(dtype));
  kernels().decode(codec, encoded_at(codec, encoded, count), count, to, dtype);
}

void decode_sum(const Codec& codec, const Sources& sources, const ReduceGroups& groups,
                std::int64_t count, void* to, DType dtype) {
  check_elements(dtype);
  OrderedSum sum(codec, sources, groups, count);
  const std::int64_t tile = largest_block / codec.block * codec.block;
  for (std::int64_t first = 0; first < count; first += tile) {
    const std::int64_t n = std::min(tile, count - first);
    sum.add_up(first, n);
    kernels().store(sum.total(), n, at(to, first * size_of(dtype)), dtype);
  }
}

void encode_with_feedback(const Codec& codec, const void* gradient, DType dtype,
                          const Feedback& feedback, std::int64_t count, void* encoded) {
  check_elements(dtype);
  check_feedback(codec.format);
  kernels().encode_with_feedback(codec, gradient, dtype, feedback, count,
                                 encoded_at(codec, encoded, count));
  zero_padding(codec, count, encoded);
}

// Tiles of whole blocks, which stay in the first-level cache.
void encode_and_compare(const Codec& codec, const void* from, DType dtype, const Feedback* feedback,
                        std::int64_t count, void* encoded, ErrorSums& errors) {
  check_elements(dtype);
  if (feedback != nullptr) check_feedback(codec.format);
  const std::int64_t tile = largest_block / codec.block * codec.block;
  alignas(64) float decoded[largest_block];
  for (std::int64_t first = 0; first < count; first += tile) {
    const std::int64_t n = std::min(tile, count - first);
    const void* elements = at(from, first * size_of(dtype));
    const Encoded to = encoded_at(codec, encoded, count, first);
    if (feedback != nullptr) {
      Feedback own = *feedback;
      for (Residue* residue : {&own.before, &own.after})
        *residue = {residue->codes + first, residue->scales + first / codec.block};
      kernels().encode_with_feedback(codec, elements, dtype, own, n, to);
    } else {
      kernels().encode(codec, elements, dtype, n, to);
    }
    kernels().decode(codec, to, n, decoded, DType::fp32);
    add_errors(elements, dtype, decoded, n, errors);
  }
  zero_padding(codec, count, encoded);
}

}  // namespace zero::comm::wire
