// The list of a comparison, --compare-stages: each item is a sharding strategy and the config keys
// that choose it.
#pragma once

#include <string>
#include <vector>

#include "zero/config.h"

namespace zero::report {

struct StageVariant {
  std::string name;  // "stage 2", "grad_op"
  Text overrides;
  bool of_gpu = false;  // on CPU ranks it would be another variant again
  // It sends less in wire formats than the others, so that its bits are its own.
  bool encoded = false;
};

// "0,1,2,3,grad_op,hybrid/2,hfsdp/2,3+hpz/2,3+qwz+qgz,3+cpu,3+nvme" or a part of it, in any order.
// Throws ConfigError, which begins with how the list was given.
std::vector<StageVariant> parse_stage_list(const std::string& list,
                                           const std::string& given_as = "--compare-stages");

}  // namespace zero::report
