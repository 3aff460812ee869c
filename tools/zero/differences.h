// Differences from DeepSpeed 0.19 in resolved values and refusals: a table of docs/config.md.
// tests/config/compare_with_deepspeed.py fails at a difference if no row names the key.
#pragma once

#include <string_view>
#include <vector>

namespace zero::tool {

struct Difference {
  std::vector<std::string_view> keys;
  std::string_view deepspeed, here, why;
};

const std::vector<Difference>& differences();

}  // namespace zero::tool
