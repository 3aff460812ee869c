// Where the codes and the scales of an encoded vector lie, for hosts and GPUs.
#pragma once

#include <cstdint>

#include "comm/wire/codec.h"

namespace zero::comm::wire {

// Bits of a code, and bytes of a scale; `none` is not a question here.
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

}  // namespace zero::comm::wire
