// Computes the values of a config's scheduler for a step, without an engine.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "zero/config.h"

namespace zero {

struct ScheduledStep {
  double learning_rate = 0;
  std::optional<std::pair<double, double>> betas;  // if set by the scheduler
};

// `step` counts applied steps, from 1. Without a scheduler the rate is the optimizer's. Throws
// ConfigError for a scheduler with impossible values.
ScheduledStep scheduled_step(const Config& config, std::int64_t step);

}  // namespace zero
