// Classes that act on keys of the config if a program makes one: the engine names these keys to a
// program that does not. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

namespace zero {

enum class Acting { monitor, diagnostics };

inline std::atomic<bool>& is_used(Acting part) {
  static std::array<std::atomic<bool>, 2> used{};
  return used[static_cast<std::size_t>(part)];
}

}  // namespace zero
