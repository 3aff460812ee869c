// Hashes of numbered elements, for digests that do not depend on how an array is divided.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace zero::optim::cpu {

template <class T, int lanes>
struct Lanes {
  typedef T Register __attribute__((vector_size(sizeof(T) * lanes)));
};

template <class V>
struct HashKernel {
  static constexpr int lanes = std::max(1, V::lanes / 2);  // of 64 bits
  using Words = typename Lanes<std::uint64_t, lanes>::Register;

  // mixed() of zero/base/hash.h, lane by lane.
  [[gnu::always_inline]] static Words mixed(Words x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  // The sum over i of mixed(mixed(first + i) + bits of element i).
  template <class Bits>
  static std::uint64_t sum(const std::byte* elements, std::int64_t count, std::uint64_t first) {
    using Narrow = typename Lanes<Bits, lanes>::Register;
    Words at{}, sums{};
    for (int lane = 0; lane < lanes; ++lane) at[lane] = first + static_cast<std::uint64_t>(lane);
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes, at += std::uint64_t{lanes}) {
      Narrow bits;
      std::memcpy(&bits, elements + i * static_cast<std::int64_t>(sizeof(Bits)), sizeof bits);
      sums += mixed(mixed(at) + __builtin_convertvector(bits, Words));
    }
    std::uint64_t total = 0;
    if (i < count) {
      Narrow bits{};
      std::memcpy(&bits, elements + i * static_cast<std::int64_t>(sizeof(Bits)),
                  static_cast<std::size_t>(count - i) * sizeof(Bits));
      const Words last = mixed(mixed(at) + __builtin_convertvector(bits, Words));
      for (int lane = 0; lane < count - i; ++lane) total += last[lane];
    }
    for (int lane = 0; lane < lanes; ++lane) total += sums[lane];
    return total;
  }
};

}  // namespace zero::optim::cpu
