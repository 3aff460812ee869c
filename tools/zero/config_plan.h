// Checks if the engine would refuse a config before the first step of a run. Makes the engine's own
// plan, for every run that the user's options leave possible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config_schemas/load.h"
#include "zero/plan/route_text.h"

namespace zero::tool {

// Size of a model for the plan. No particular model: the tool serves every program, and the
// engine's refusals depend on kinds of parameters and groups, not on names.
struct ModelSize {
  std::int64_t parameters = 10'000'000, layers = 4;
};
// Parses "124M", "7e9" or "7Bx32": parameters, and layers, if given. Throws ConfigError.
ModelSize parse_model_size(const std::string& text);

struct PlannedRun {
  std::optional<int> ranks;
  int per_node = 0;  // consecutive ranks of a node; 0: a single node
  std::optional<bool> on_gpu;
  std::optional<ModelSize> model;
  std::optional<std::int64_t> total_steps;
};

// Throws ConfigError, with the place in the file, if every such run is refused. Returns notices
// about settings that are refused on one device only.
std::vector<std::string> check_plan(const config_schemas::Loaded& loaded, const std::string& file,
                                    const PlannedRun& run);

// Returns the exchanges of one block of a generic decoder. Throws ConfigError if the config cannot
// be used with these ranks.
std::vector<detail::Exchange> block_exchanges(const Config& config, const PlannedRun& run);

}  // namespace zero::tool
