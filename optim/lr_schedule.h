// Learning rates as DeepSpeed's schedulers give them. Their clock: the k-th applied step (k = 1, 2,
// ...) runs with the initial rate for k = 1 and with f(k - 2) afterwards; a skipped step does not
// tick.
#pragma once

#include <cstdint>
#include <optional>

#include "optim/options.h"

namespace zero::optim {

// Of one step, instead of the optimizer's.
struct Betas {
  double first = 0, second = 0;
};

class LrSchedule {
 public:
  // Throws ConfigError with all problems of the options, one a line.
  LrSchedule(const SchedulerOptions& options, double optimizer_rate);

  // The rate of the applied step with this number, counted from 1.
  double rate(std::int64_t applied_step) const;
  // OneCycle moves the first beta against the rate; for optimizers that have betas.
  std::optional<Betas> betas(std::int64_t applied_step) const;

 private:
  // The scheduler's own count, from 0.
  std::int64_t iteration_of(std::int64_t applied_step) const {
    return options_.last_batch_iteration + applied_step - 1;
  }

  SchedulerOptions options_;
  double optimizer_rate_;
};

// The first step for which LrSchedule::betas() throws, if there is one: OneCycle's decay_mom_rate
// raises the momentum to 1.
std::optional<std::int64_t> first_step_without_momentum(const SchedulerOptions& options);

}  // namespace zero::optim
