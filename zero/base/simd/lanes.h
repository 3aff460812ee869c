// Walks ranges in whole vectors; the remainder goes through a padded copy on the stack, and thus
// through the same instructions, so that the results do not depend on the bounds of a range.
#pragma once

#include <cstdint>
#include <cstring>

namespace zero::simd {

template <class V>
struct AllLanes {
  static constexpr std::int64_t count = V::lanes;

  template <class T>
  [[gnu::always_inline]] V load(const T* from) const {
    return V::load(from);
  }
  template <class T>
  [[gnu::always_inline]] void store(const V& value, T* to) const {
    value.store(to);
  }
};

template <class V>
struct SomeLanes {
  std::int64_t count;

  template <class T>
  V load(const T* from) const {
    alignas(64) unsigned char padded[V::lanes * sizeof(T)] = {};
    std::memcpy(padded, from, static_cast<std::size_t>(count) * sizeof(T));
    return V::load(reinterpret_cast<const T*>(padded));
  }
  template <class T>
  void store(const V& value, T* to) const {
    alignas(64) unsigned char padded[V::lanes * sizeof(T)];
    value.store(reinterpret_cast<T*>(padded));
    std::memcpy(to, padded, static_cast<std::size_t>(count) * sizeof(T));
  }
};

// Calls body(at, lanes) for each vector of a range; `lanes` loads and stores the elements that are
// in the range.
template <class V, class Body>
[[gnu::always_inline]] inline void for_vectors(std::int64_t at, std::int64_t end,
                                               const Body& body) {
  for (; at + V::lanes <= end; at += V::lanes) body(at, AllLanes<V>());
  if (at < end) body(at, SomeLanes<V>{end - at});
}

}  // namespace zero::simd
