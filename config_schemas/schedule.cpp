#include "zero/schedule.h"

#include "optim/lr_schedule.h"
#include "optim/options.h"

namespace zero {

ScheduledStep scheduled_step(const Config& config, std::int64_t step) {
  const optim::LrSchedule schedule(config.scheduler,
                                   optim::options_of_rule(config.optimizer, false).learning_rate);
  ScheduledStep scheduled{schedule.rate(step), std::nullopt};
  if (const auto betas = schedule.betas(step)) scheduled.betas = {betas->first, betas->second};
  return scheduled;
}

}  // namespace zero
