// The settings of rotary position embedding in a config.json of Hugging Face.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "examples/gpt/model/config_reader.h"

namespace gpt {

struct RopeConfig {
  std::string type = "default";  // default, linear, dynamic, llama3 or yarn
  double theta = 10000, factor = 1;
  std::int64_t original_context = 0;                // llama3 and yarn
  double low_frequency = 1, high_frequency = 4;     // llama3
  double attention_factor = 0;                      // yarn; 0: from factor and mscale
  double beta_fast = 32, beta_slow = 1;             // yarn
  double mscale = 0, mscale_of_all_dimensions = 0;  // yarn; 0: not given
  bool truncate = true;                             // yarn
};

// Reads rope_theta with rope_scaling, or rope_parameters. Unsupported values are reported as
// problems of the reader.
RopeConfig read_rope(ConfigReader& reader, std::int64_t context);
// Adds rope_theta and rope_scaling.
void write_rope(const RopeConfig& rope, nlohmann::json& config);

}  // namespace gpt
