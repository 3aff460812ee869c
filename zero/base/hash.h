// Hashes that are equal on every rank and in every run: for comparing, not for security.
#pragma once

#include <cstdint>
#include <string_view>

namespace zero {

// FNV-1a, 64 bits.
constexpr std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// The finalizer of splitmix64: neighboring inputs give unrelated outputs.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace zero
