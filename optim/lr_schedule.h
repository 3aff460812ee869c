// Learning rates as DeepSpeed's schedulers give them. Their clock: the k-th applied step (k = 1, 2,
// ...) runs with the initial rate for k = 1 and with f(k - 2) afterwards; a skipped step does not
// tick.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "optim/options.h"

namespace zero::optim {

// Of one step, instead of the optimizer's.
struct Betas {
  double first = 0, second = 0;
};

class LrSchedule {
 public:
  virtual ~LrSchedule() = default;
  // The rate of the applied step with this number, counted from 1.
  virtual double rate(std::int64_t applied_step) const = 0;
  // OneCycle moves the first beta against the rate; for optimizers that have betas.
  virtual std::optional<Betas> betas(std::int64_t) const { return std::nullopt; }
};

std::unique_ptr<LrSchedule> create_lr_schedule(const SchedulerOptions& options,
                                               double optimizer_learning_rate);

}  // namespace zero::optim
