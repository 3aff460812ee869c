// Learning rates of DeepSpeed's schedulers. The clock counts applied steps: step k uses the initial
// rate if k = 1 and f(k - 2) afterwards; a skipped step does not advance the clock.
#pragma once

#include <cstdint>
#include <optional>

#include "optim/options.h"

namespace zero::optim {

// Betas of a step, instead of the optimizer's.
struct Betas {
  double first = 0, second = 0;
};

class LrSchedule {
 public:
  // Throws ConfigError with all problems of the options, one per line.
  LrSchedule(const SchedulerOptions& options, double optimizer_rate);

  // Returns the rate of an applied step, counted from 1.
  double rate(std::int64_t applied_step) const;
  // OneCycle moves the first beta opposite to the rate, if the optimizer has betas.
  std::optional<Betas> betas(std::int64_t applied_step) const;

 private:
  // The scheduler's own count, from 0.
  std::int64_t iteration_of(std::int64_t applied_step) const {
    return options_.last_batch_iteration + applied_step - 1;
  }

  SchedulerOptions options_;
  double optimizer_rate_;
};

// Returns the first step that LrSchedule::betas() throws for, if any: OneCycle's decay_mom_rate
// raises the momentum to 1.
std::optional<std::int64_t> first_step_without_momentum(const SchedulerOptions& options);

}  // namespace zero::optim
