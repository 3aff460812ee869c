#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "optim/option_problems.h"

namespace zero::optim {

namespace {

double warmup(const SchedulerOptions& options, std::int64_t warmup_steps, std::int64_t iteration) {
  const auto n = static_cast<double>(iteration), steps = static_cast<double>(warmup_steps);
  return options.warmup_type == "log" ? 1.0 / std::log(steps) * std::log(n + 1) : n / steps;
}

std::int64_t warmup_steps_of(const SchedulerOptions& options) {
  return std::max<std::int64_t>(2, options.warmup_num_steps);
}

// Rates by the scheduler's own count, from 0.
double warmup_rate(const SchedulerOptions& options, double optimizer_rate, std::int64_t iteration) {
  const bool decays = options.type == "WarmupDecayLR";
  // The defaults differ: WarmupLR uses the optimizer's rate, WarmupDecayLR a constant.
  const double most = options.warmup_max_lr.value_or(decays ? 0.001 : optimizer_rate);
  const std::int64_t steps = warmup_steps_of(options), total = options.total_num_steps;
  double share = 1;
  if (iteration < steps)
    share = warmup(options, steps, iteration);
  else if (decays)
    share = std::max(0.0, static_cast<double>(total - iteration) /
                              std::max(1.0, static_cast<double>(total - steps)));
  return options.warmup_min_lr + (most - options.warmup_min_lr) * share;
}

double cosine_rate(const SchedulerOptions& options, double optimizer_rate, std::int64_t iteration) {
  const std::int64_t steps = warmup_steps_of(options);
  const auto above = [](double least, double share) { return least + (1 - least) * share; };
  if (iteration < steps)
    return optimizer_rate * above(options.warmup_min_ratio, warmup(options, steps, iteration));
  // At the end of the warm-up the cosine has already advanced one step.
  const auto done = static_cast<double>(iteration - steps + 1);
  const double length = std::max(1.0, static_cast<double>(options.total_num_steps - steps));
  const double cosine = (1 + std::cos(std::numbers::pi * std::min(1.0, done / length))) / 2;
  return optimizer_rate * above(options.cos_min_ratio, cosine);
}

double range_test_rate(const SchedulerOptions& options, double, std::int64_t iteration) {
  double intervals =
      static_cast<double>(iteration + 1) / static_cast<double>(options.lr_range_test_step_size);
  if (options.lr_range_test_staircase) intervals = std::floor(intervals);
  return options.lr_range_test_min_lr * (1 + options.lr_range_test_step_rate * intervals);
}

// OneCycle's rate, and the momentum, which moves in the opposite direction.
class Cycle {
 public:
  explicit Cycle(const SchedulerOptions& options)
      : options_(options),
        first_(options.cycle_first_step_size),
        length_(first_ + options.cycle_second_step_size.value_or(first_)) {}

  std::int64_t length() const { return length_; }

  double rate(std::int64_t iteration) const {
    if (iteration < length_)
      return between(options_.cycle_min_lr, options_.cycle_max_lr, iteration);
    return options_.cycle_min_lr / growth(options_.decay_lr_rate, iteration);
  }

  double momentum(std::int64_t iteration) const {
    if (iteration < length_)
      return between(options_.cycle_max_mom, options_.cycle_min_mom, iteration);
    return options_.cycle_max_mom * growth(options_.decay_mom_rate, iteration);
  }

 private:
  // Interpolates from `foot` to `top` of the cycle.
  double between(double foot, double top, std::int64_t iteration) const {
    return foot + (top - foot) * height(iteration + 1);
  }

  // Growth after the cycle, by `rate` in each decay_step_size steps.
  double growth(double rate, std::int64_t iteration) const {
    if (options_.decay_step_size == 0) return 1;
    return 1 + rate * (static_cast<double>(iteration - length_ + 1) /
                       static_cast<double>(options_.decay_step_size));
  }

  // Returns the height, 0 to 1, of a step of the cycle, counted from 1.
  double height(std::int64_t step) const {
    const std::int64_t stairs = options_.cycle_first_stair_count;
    const auto length = static_cast<double>(length_);
    const double top = static_cast<double>(first_) / length;
    const double turns = 1 + static_cast<double>(step) / length;
    const double place = turns - std::floor(turns);
    const std::int64_t within = step % length_;
    if (place <= top) return stairs > 0 ? stair(stairs, within, first_) : place / top;
    const std::int64_t down = options_.cycle_second_stair_count.value_or(stairs);
    return down > 0 ? stair(down, length_ - within, length_ - first_) : (place - 1) / (top - 1);
  }

  static double stair(std::int64_t count, std::int64_t step, std::int64_t steps) {
    const auto stairs = static_cast<double>(count);
    return std::floor(stairs * static_cast<double>(step) / static_cast<double>(steps)) / stairs;
  }

  const SchedulerOptions& options_;
  std::int64_t first_, length_;
};

double cycle_rate(const SchedulerOptions& options, double, std::int64_t iteration) {
  return Cycle(options).rate(iteration);
}

void check_warmup(const SchedulerOptions& options, OptionProblems& problems) {
  problems.require(options.warmup_num_steps > 0, "warmup_num_steps", "a positive integer",
                   options.warmup_num_steps);
  problems.require(options.warmup_type == "log" || options.warmup_type == "linear",
                   "warmup_type: unknown \"" + options.warmup_type + "\"; expected log or linear");
  problems.require(
      options.type == "WarmupLR" || options.total_num_steps > 0,
      "total_num_steps: " + options.type + " needs the number of steps, a positive integer");
}

void check_cycle(const SchedulerOptions& options, OptionProblems& problems) {
  problems.require(options.cycle_first_step_size > 0, "cycle_first_step_size", "a positive integer",
                   options.cycle_first_step_size);
  problems.require_not_negative("cycle_second_step_size",
                                options.cycle_second_step_size.value_or(0));
  constexpr std::int64_t most = std::int64_t{1} << 53;  // counts stay exact as doubles
  problems.require(
      options.cycle_first_step_size <= most && options.cycle_second_step_size.value_or(0) <= most,
      "cycle_first_step_size, cycle_second_step_size: expected at most 2^53");
  problems.require_not_negative("cycle_first_stair_count", options.cycle_first_stair_count);
  problems.require_not_negative("cycle_second_stair_count",
                                options.cycle_second_stair_count.value_or(0));
  problems.require_not_negative("decay_step_size", options.decay_step_size);
  for (const auto& [name, value] : {std::pair{"cycle_min_mom", options.cycle_min_mom},
                                    std::pair{"cycle_max_mom", options.cycle_max_mom}})
    problems.require(value >= 0 && value < 1, name, "0 <= momentum < 1", value);
}

void check_range_test(const SchedulerOptions& options, OptionProblems& problems) {
  problems.require(options.lr_range_test_step_size > 0, "lr_range_test_step_size",
                   "a positive integer", options.lr_range_test_step_size);
}

struct Type {
  std::string_view name;
  double SchedulerOptions::*initial_rate;  // null: 0
  double (*rate)(const SchedulerOptions&, double optimizer_rate, std::int64_t iteration);
  void (*check)(const SchedulerOptions&, OptionProblems&);
};

constexpr Type types[] = {
    {"WarmupLR", &SchedulerOptions::warmup_min_lr, warmup_rate, check_warmup},
    {"WarmupDecayLR", &SchedulerOptions::warmup_min_lr, warmup_rate, check_warmup},
    {"WarmupCosineLR", nullptr, cosine_rate, check_warmup},
    {"LRRangeTest", &SchedulerOptions::lr_range_test_min_lr, range_test_rate, check_range_test},
    {"OneCycle", &SchedulerOptions::cycle_min_lr, cycle_rate, check_cycle},
};

const Type& type_of(const SchedulerOptions& options) {
  for (const Type& type : types)
    if (type.name == options.type) return type;
  throw ConfigError("scheduler.type: unknown \"" + options.type +
                    "\"; expected WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest or "
                    "OneCycle, in this spelling, or no scheduler for a constant rate");
}

}  // namespace

std::optional<std::int64_t> first_step_without_momentum(const SchedulerOptions& options) {
  const bool grows = options.decay_step_size > 0 && options.decay_mom_rate > 0;
  if (options.type != "OneCycle" || !options.cycle_momentum || !grows) return std::nullopt;
  const Cycle cycle(options);
  const double behind = std::ceil((1 / options.cycle_max_mom - 1) / options.decay_mom_rate *
                                  static_cast<double>(options.decay_step_size));
  const double last = static_cast<double>(cycle.length() - 1) + behind;
  if (!(last < 0x1p52)) return std::nullopt;  // infinite when the most momentum is 0
  auto iteration = static_cast<std::int64_t>(last);
  while (cycle.momentum(iteration) < 1) ++iteration;  // the quotients above are rounded
  while (iteration > cycle.length() && cycle.momentum(iteration - 1) >= 1) --iteration;
  return std::max<std::int64_t>(2, iteration + 1 - options.last_batch_iteration);
}

LrSchedule::LrSchedule(const SchedulerOptions& options, double optimizer_rate)
    : options_(options), optimizer_rate_(optimizer_rate) {
  if (options.type.empty()) return;
  OptionProblems problems("scheduler.params.");
  type_of(options).check(options, problems);
  problems.require(options.last_batch_iteration >= -1, "last_batch_iteration", "-1 or more",
                   options.last_batch_iteration);
  problems.throw_if_any();
}

double LrSchedule::rate(std::int64_t applied_step) const {
  if (options_.type.empty()) return optimizer_rate_;
  const Type& type = type_of(options_);
  if (applied_step > 1) return type.rate(options_, optimizer_rate_, iteration_of(applied_step));
  // With a restored clock the first step keeps the optimizer's own rate, as in DeepSpeed.
  if (options_.last_batch_iteration != -1) return optimizer_rate_;
  return type.initial_rate == nullptr ? 0 : options_.*type.initial_rate;
}

// As in DeepSpeed, the first step has the least momentum, though the cycle starts at the most, and
// the second beta is 0.99 regardless of the optimizer's.
std::optional<Betas> LrSchedule::betas(std::int64_t applied_step) const {
  if (options_.type != "OneCycle" || !options_.cycle_momentum) return std::nullopt;
  if (applied_step <= 1 && options_.last_batch_iteration != -1) return std::nullopt;
  const double momentum = applied_step <= 1 ? options_.cycle_min_mom
                                            : Cycle(options_).momentum(iteration_of(applied_step));
  if (!(momentum < 1))
    throw ConfigError("scheduler.params.decay_mom_rate: raises the momentum to " +
                      std::to_string(momentum) + " at step " + std::to_string(applied_step) +
                      "; expected a rate that keeps it below 1 to the end of training");
  return Betas{momentum, 0.99};
}

}  // namespace zero::optim
