// 32 floats in plain loops: the portable level, and the meaning of the others. Blocks have
// multiples of 32 elements.
#pragma once

#include <bit>
#include <cstdint>

#include "comm/wire/block_codes.h"
#include "zero/base/dtype.h"

namespace zero::comm::wire {

struct Portable32 {
  static constexpr int lanes = 32, count = lanes;
  float parts[count];

  template <class T>
  static Portable32 load(const T* from) {
    Portable32 result;
    for (int i = 0; i < lanes; ++i) result.parts[i] = to_float(from[i]);
    return result;
  }
  template <class T>
  void store(T* to) const {
    for (int i = 0; i < lanes; ++i) to[i] = from_float<T>(parts[i]);
  }

  // The codes of these elements, as F::bits * lanes / 8 bytes.
  template <class F>
  void write_codes(const Scaling& scaling, std::uint8_t* to) const {
    std::uint8_t codes[lanes];
    for (int i = 0; i < lanes; ++i) codes[i] = F::code(parts[i] * scaling.first * scaling.second);
    for (int i = 0; i < lanes && F::bits == 8; ++i) to[i] = codes[i];
    for (int i = 0; i < lanes / 2 && F::bits == 4; ++i)
      to[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
  // scale * (what a code stands for).
  template <class F>
  static Portable32 decode(const std::uint8_t* from, float scale) {
    std::uint8_t codes[lanes];
    for (int i = 0; i < lanes && F::bits == 8; ++i) codes[i] = from[i];
    for (int i = 0; i < lanes / 2 && F::bits == 4; ++i) {
      codes[2 * i] = from[i] & 0xf;
      codes[2 * i + 1] = from[i] >> 4;
    }
    Portable32 result;
    for (int i = 0; i < lanes; ++i) result.parts[i] = scale * F::unit(codes[i]);
    return result;
  }

  // The largest magnitude of groups of elements, as bits of a float.
  template <class T>
  struct Maximum {
    std::uint32_t largest[lanes] = {};
    void include(const T* from) {
      for (int i = 0; i < lanes; ++i) {
        const std::uint32_t magnitude =
            std::bit_cast<std::uint32_t>(to_float(from[i])) & 0x7fffffffu;
        largest[i] = largest[i] < magnitude ? magnitude : largest[i];
      }
    }
    std::uint32_t bits() const {
      std::uint32_t result = 0;
      for (int i = 0; i < lanes; ++i) result = result < largest[i] ? largest[i] : result;
      return result;
    }
  };
};

}  // namespace zero::comm::wire
