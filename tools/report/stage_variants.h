// The list of a comparison, --compare-stages: each item is a sharding strategy with its config
// keys.
#pragma once

#include <string>
#include <vector>

#include "zero/config.h"

namespace zero::report {

struct StageVariant {
  std::string name;  // "stage 2", "grad_op"
  Text overrides;
  bool of_gpu = false;  // on CPU ranks it equals another variant
  // Set if this variant sends less, by wire formats, so that the bits differ.
  bool encoded = false;
};

// Stands before the stages of a pipeline in an item: "3/p2".
inline constexpr const char* stages_mark = "/p";
inline constexpr const char* stages_key = "pipeline.stages";
bool is_number_of_stages(const std::string& text);
// Erases the stages of a pipeline at the end of an item, and returns their number; "" without.
std::string take_stages(std::string& item);

// Parses "0,1,2,3,grad_op,hybrid/2,hfsdp/2,3+hpz/2,3+qwz+qgz,3+cpu,3+nvme,3/p2" or a part of it, in
// any order. Throws a ConfigError that begins with the option that gave the list.
std::vector<StageVariant> parse_stage_list(const std::string& list,
                                           const std::string& given_as = "--compare-stages");
// Parses an item; the result sets offload and wire formats too, whatever the config says.
StageVariant stage_variant(const std::string& item, const std::string& given_as);

}  // namespace zero::report
