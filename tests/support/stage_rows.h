// Config changes that choose each stage, for tests that compare their results.
#pragma once

#include <functional>
#include <vector>

#include "zero/config.h"

namespace zero::tests {

struct ConfigRow {
  const char* name;
  std::function<void(Config&)> change;
};

// Stages 0 to 3, and SHARD_GRAD_OP.
inline std::vector<ConfigRow> stage_rows() {
  const auto stage = [](int number) {
    return [number](Config& c) { c.zero_optimization.stage = number; };
  };
  return {{"stage 0", stage(0)},
          {"stage 1", stage(1)},
          {"stage 2", stage(2)},
          {"stage 3", stage(3)},
          {"SHARD_GRAD_OP", [](Config& c) {
             c.zero_optimization.stage = 3;
             c.zero_core.reshard_after_forward = false;
           }}};
}

}  // namespace zero::tests
