// Whether the engine would refuse a config before the first step of a run. Its own plan says so,
// made for runs that are as open as the user left them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config_schemas/load.h"

namespace zero::tool {

// A model as far as the plan asks for one. It is no particular model: the tool serves every
// program, and what the engine refuses depends on kinds of parameters and groups, not on names.
struct ModelSize {
  std::int64_t parameters = 10'000'000, layers = 4;
};
// "124M", "7e9", "7Bx32": parameters, and layers where they are given. Throws ConfigError.
ModelSize parse_model_size(const std::string& text);

struct PlannedRun {
  std::optional<int> ranks;
  std::optional<bool> on_gpu;
  std::optional<ModelSize> model;
  std::optional<std::int64_t> total_steps;
};

// Throws ConfigError, with the place in the file, where every such run is refused. The result is
// notices about what is refused on one device alone.
std::vector<std::string> check_plan(const config_schemas::Loaded& loaded, const std::string& file,
                                    const PlannedRun& run);

}  // namespace zero::tool
