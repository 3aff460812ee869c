// An array with an element per value of an enumeration, indexed by that value.
#pragma once

#include <array>
#include <cstddef>

namespace zero {

template <class Enum, class T, std::size_t count>
struct EnumArray : std::array<T, count> {
  using std::array<T, count>::operator[];
  T& operator[](Enum index) { return (*this)[static_cast<std::size_t>(index)]; }
  const T& operator[](Enum index) const { return (*this)[static_cast<std::size_t>(index)]; }
};

}  // namespace zero
