// Classes of a program that act on keys of the config: without such an object, the engine reports
// these keys as without effect. Any thread.
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
