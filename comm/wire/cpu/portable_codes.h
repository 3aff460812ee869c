// Codes in plain loops: the portable level, and the reference for all levels.
#pragma once

#include <bit>
#include <cstdint>

#include "comm/wire/cpu/floats32.h"
#include "zero/base/simd/scalar1.h"

namespace zero::comm::wire {

struct PortableCodes {
  using V = simd::Scalar1;
  static constexpr int lanes = 32;

  template <class F>
  static void write(const V* scaled, std::uint8_t* to) {
    std::uint8_t codes[lanes];
    for (int i = 0; i < lanes; ++i) codes[i] = F::code(scaled[i].value);
    for (int i = 0; i < lanes && F::bits == 8; ++i) to[i] = codes[i];
    for (int i = 0; i < lanes / 2 && F::bits == 4; ++i)
      to[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
  template <class F>
  static void units(F, const std::uint8_t* from, V* units) {
    std::uint8_t codes[lanes];
    for (int i = 0; i < lanes && F::bits == 8; ++i) codes[i] = from[i];
    for (int i = 0; i < lanes / 2 && F::bits == 4; ++i) {
      codes[2 * i] = from[i] & 0xf;
      codes[2 * i + 1] = from[i] >> 4;
    }
    for (int i = 0; i < lanes; ++i) units[i].value = F::unit(codes[i]);
  }

  template <class T>
  struct Maximum {
    std::uint32_t largest[lanes] = {};
    void include(const T* from) {
      for (int i = 0; i < lanes; ++i) {
        const std::uint32_t magnitude = V(to_float(from[i])).bits() & 0x7fffffffu;
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

using Portable32 = Floats32<simd::Scalar1, PortableCodes>;

}  // namespace zero::comm::wire
