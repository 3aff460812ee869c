// Formats in which gathers and reductions send fewer bytes than the elements have.
//
// A block format cuts a vector into blocks of `block` elements, the last of which may be short, and
// sends a scale for each block and a code for each element:
//
//   int8      scale: the largest magnitude (fp32); code q: scale * (q / 127)
//   int4      the same with q / 7; two codes per byte, the first one in its low half
//   fp8_e4m3  scale: the largest magnitude (fp32); code v: scale * (v / 448)
//   mxfp8     code v: v * 2^scale (E8M0), the smallest power of two with which nothing saturates;
//             blocks of 32
//
// Codes are rounded to nearest even, and quotients are products with the reciprocal in fp32. The
// largest magnitude of a block is exact, except in mxfp8, which rounds all elements (the largest
// fp32 values to infinity, as in bf16). A block that contains an infinity or NaN decodes as NaN.
// `bf16` rounds each element and has no blocks; `none` sends the elements unchanged, in the given
// dtype; encoder and decoder must be given the same.
//
// An encoded vector has the codes, then the scales, each padded with zeros to a multiple of 16
// bytes. Elements are fp32, bf16 or fp16. Every SIMD level and GPU gives bitwise identical results
// (payloads of NaN excepted). Functions of this header run on the calling thread at once, even if a
// stream is given, allocate no memory, and may run concurrently on different buffers.
//
// int8 weights and int4 gradients: ZeRO++, arXiv 2306.10209. mxfp8: OCP Microscaling Formats (MX)
// Specification 1.0.
#pragma once

#include <cstdint>
#include <string>

#include "comm/reduce_groups.h"
#include "zero/base/dtype.h"
#include "zero/base/error.h"
#include "zero/base/stream.h"

namespace zero::comm::wire {

enum class Format : std::uint8_t { none, bf16, fp8_e4m3, mxfp8, int8, int4 };

inline constexpr const char* format_names[] = {"none", "bf16", "fp8_e4m3", "mxfp8", "int8", "int4"};
inline const char* name_of(Format format) {
  return format_names[static_cast<int>(format)];
}

inline constexpr std::int64_t largest_block = 2048;

struct Codec {
  // Throws UsageError unless `block` is a multiple of 32 up to largest_block. mxfp8 always has
  // blocks of 32.
  explicit Codec(Format format, std::int64_t block = 256)
      : format(format), block(format == Format::mxfp8 ? 32 : block) {
    if (block < 32 || block > largest_block || block % 32 != 0)
      throw UsageError("the blocks of a wire format have a multiple of 32 elements, at most " +
                       std::to_string(largest_block) + ", not " + std::to_string(block));
  }

  bool operator==(const Codec&) const = default;

  Format format;
  std::int64_t block;
};

// `encoded` has encoded_bytes() of comm/wire/layout.h, from an address that is a multiple of 16.
void decode(const Codec& codec, const void* encoded, std::int64_t count, void* to, DType dtype,
            Stream stream = {});

// Encoded vectors, `stride` bytes apart.
struct Sources {
  const void* first;
  std::int64_t stride;
  int count;
};

// to[i] = sum over sources of the decoded element, in fp32, in the order of ordered_sum() of
// comm/reduce.h, but rounded once, to `dtype`, at the end. The elements of `none` are in fp32.
void decode_sum(const Codec& codec, const Sources& sources, const ReduceGroups& groups,
                std::int64_t count, void* to, DType dtype, Stream stream = {});

// Errors of encodings: sums of squares over the elements. Elements that are not finite add nothing.
struct ErrorSums {
  double difference = 0, values = 0;
};

// The sums that errors are added to; none by default. On a GPU each thread block first sums in
// `parts`: that many sums, which nothing else uses meanwhile.
inline constexpr int most_error_parts = 512;
struct ErrorTarget {
  ErrorSums* sums = nullptr;
  ErrorSums* parts = nullptr;
};

// Elements to encode, and the sums that the errors of this encoding are added to. On a GPU all
// pointers are to GPU memory. `none` has no errors.
struct Elements {
  const void* data;
  DType dtype;
  std::int64_t count;
  ErrorTarget errors = {};
};

void encode(const Codec& codec, const Elements& from, void* encoded, Stream stream = {});

}  // namespace zero::comm::wire
