// Planned bytes of a category of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "zero/report.h"

namespace zero::tests {

inline std::int64_t planned(const std::vector<MemoryUse>& uses, const std::string& category) {
  return std::ranges::find(uses, category, &MemoryUse::category)->planned;
}

}  // namespace zero::tests
