// Positions of the codes and the scales of an encoded vector, for hosts and GPUs.
#pragma once

#include <cstdint>

#include "comm/wire/codec.h"

namespace zero::comm::wire {

// Bits of a code, and bytes of a scale; not defined for `none`.
constexpr int code_bits(Format format) {
  return format == Format::bf16 ? 16 : format == Format::int4 ? 4 : 8;
}
constexpr std::int64_t scale_bytes(Format format) {
  return format == Format::bf16 ? 0 : format == Format::mxfp8 ? 1 : 4;
}

constexpr std::int64_t filled(std::int64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

constexpr std::int64_t code_bytes(Format format, std::int64_t count) {
  return (count * code_bits(format) + 7) / 8;
}
constexpr std::int64_t block_count(const Codec& codec, std::int64_t count) {
  return (count + codec.block - 1) / codec.block;
}

// Returns a multiple of 16. `dtype` matters for `none` only.
constexpr std::int64_t encoded_bytes(const Codec& codec, std::int64_t count, DType dtype) {
  if (codec.format == Format::none) return filled(count * size_of(dtype));
  return filled(code_bytes(codec.format, count)) +
         filled(block_count(codec, count) * scale_bytes(codec.format));
}

// A range of an encoded vector that starts with a block. The scales are floats, or bytes in mxfp8;
// bf16 has none.
struct Encoded {
  std::uint8_t* codes;
  void* scales;
};

// Returns the blocks from element `first` on; `first` must start a block.
inline Encoded encoded_at(const Codec& codec, const void* encoded, std::int64_t count,
                          std::int64_t first = 0) {
  auto* codes = static_cast<std::uint8_t*>(const_cast<void*>(encoded));
  auto* scales = codes + filled(code_bytes(codec.format, count));
  return {codes + code_bytes(codec.format, first),
          scales + first / codec.block * scale_bytes(codec.format)};
}

// Throws UsageError for int64.
void check_elements(DType dtype);

}  // namespace zero::comm::wire
