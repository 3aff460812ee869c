// Counter-based random numbers: value n of a key is a pure function of (key, n), so any rank can
// make any part of a stream. SplitMix64 with random access.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpt {

constexpr std::uint64_t mix_bits(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

class CounterRandom {
 public:
  // Streams of different seeds, purposes and indices are independent.
  constexpr CounterRandom(std::uint64_t seed, std::string_view purpose, std::uint64_t index = 0)
      : key_(mix_bits(seed + 0x9e3779b97f4a7c15u)) {
    std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    key_ = mix_bits(mix_bits(key_ ^ hash) + mix_bits(index));
  }

  constexpr std::uint64_t bits(std::uint64_t counter) const {
    return mix_bits(key_ + (counter + 1) * 0x9e3779b97f4a7c15u);
  }
  // Values in (0, 1], exactly representable.
  constexpr double uniform(std::uint64_t counter) const {
    return static_cast<double>((bits(counter) >> 11) + 1) * 0x1.0p-53;
  }

 private:
  std::uint64_t key_;
};

}  // namespace gpt
