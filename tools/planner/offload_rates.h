// The rates by which a run divides updates of offloaded state between hosts and GPUs.
#pragma once

#include <string>

#include "tools/planner/request.h"

namespace zero::planner {

// Returns a sentence with the device's rates, in bytes per second of a rank, if the request's
// config divides updates (zero_core.offload_step "both") without saying by which; otherwise "". The
// plan is that of the config, since a run has no other. Throws ConfigError.
std::string missing_rates_text(const Request& request);

}  // namespace zero::planner
