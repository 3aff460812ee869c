#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "zero/base/error.h"

namespace zero::optim {

namespace {

class Constant : public LrSchedule {
 public:
  explicit Constant(double rate) : rate_(rate) {}
  double rate(std::int64_t) const override { return rate_; }

 private:
  double rate_;
};

// The clock that all schedules share.
class Clocked : public LrSchedule {
 public:
  // With a restored clock the first step keeps the optimizer's own rate, as in DeepSpeed.
  Clocked(const SchedulerOptions& options, double initial_rate, double optimizer_rate)
      : start_(options.last_batch_iteration),
        first_rate_(start_ == -1 ? initial_rate : optimizer_rate) {}

  double rate(std::int64_t applied_step) const override {
    return applied_step <= 1 ? first_rate_ : rate_at(iteration_of(applied_step));
  }

 protected:
  std::int64_t iteration_of(std::int64_t applied_step) const { return start_ + applied_step - 1; }
  bool restored() const { return start_ != -1; }
  // The scheduler's own count, from 0.
  virtual double rate_at(std::int64_t iteration) const = 0;

 private:
  std::int64_t start_;
  double first_rate_;
};

class Warmup : public Clocked {
 public:
  Warmup(const SchedulerOptions& options, double initial_rate, double optimizer_rate)
      : Clocked(options, initial_rate, optimizer_rate),
        warmup_steps_(std::max<std::int64_t>(2, options.warmup_num_steps)),
        logarithmic_(options.warmup_type == "log") {}

 protected:
  bool warming_up(std::int64_t iteration) const { return iteration < warmup_steps_; }
  double warmup(std::int64_t iteration) const {
    const auto n = static_cast<double>(iteration), steps = static_cast<double>(warmup_steps_);
    return logarithmic_ ? 1.0 / std::log(steps) * std::log(n + 1) : n / steps;
  }
  std::int64_t warmup_steps() const { return warmup_steps_; }

 private:
  std::int64_t warmup_steps_;
  bool logarithmic_;
};

struct Bounds {
  double least, most;
};

class WarmupLr : public Warmup {
 public:
  WarmupLr(const SchedulerOptions& options, Bounds bounds, double optimizer_rate)
      : Warmup(options, bounds.least, optimizer_rate), bounds_(bounds) {}

 protected:
  double rate_at(std::int64_t iteration) const override {
    return bounds_.least + (bounds_.most - bounds_.least) * share(iteration);
  }
  virtual double share(std::int64_t iteration) const {
    return warming_up(iteration) ? warmup(iteration) : 1;
  }

 private:
  Bounds bounds_;
};

class WarmupDecayLr : public WarmupLr {
 public:
  WarmupDecayLr(const SchedulerOptions& options, Bounds bounds, double optimizer_rate)
      : WarmupLr(options, bounds, optimizer_rate), total_steps_(options.total_num_steps) {}

 protected:
  double share(std::int64_t iteration) const override {
    if (warming_up(iteration)) return warmup(iteration);
    const auto left = static_cast<double>(total_steps_ - iteration);
    return std::max(0.0, left / std::max(1.0, static_cast<double>(total_steps_ - warmup_steps())));
  }

 private:
  std::int64_t total_steps_;
};

class WarmupCosineLr : public Warmup {
 public:
  WarmupCosineLr(const SchedulerOptions& options, double optimizer_rate)
      : Warmup(options, 0, optimizer_rate),
        total_steps_(options.total_num_steps),
        optimizer_rate_(optimizer_rate),
        warmup_min_ratio_(options.warmup_min_ratio),
        cos_min_ratio_(options.cos_min_ratio) {}

 protected:
  double rate_at(std::int64_t iteration) const override {
    return optimizer_rate_ * ratio(iteration);
  }

 private:
  double ratio(std::int64_t iteration) const {
    if (warming_up(iteration))
      return warmup_min_ratio_ + (1 - warmup_min_ratio_) * warmup(iteration);
    // The cosine is one step in already at the end of the warm-up.
    const auto done = static_cast<double>(iteration - warmup_steps() + 1);
    const double length = std::max(1.0, static_cast<double>(total_steps_ - warmup_steps()));
    const double cosine = (1 + std::cos(std::numbers::pi * std::min(1.0, done / length))) / 2;
    return cos_min_ratio_ + (1 - cos_min_ratio_) * cosine;
  }

  std::int64_t total_steps_;
  double optimizer_rate_, warmup_min_ratio_, cos_min_ratio_;
};

class LrRangeTest : public Clocked {
 public:
  LrRangeTest(const SchedulerOptions& options, double optimizer_rate)
      : Clocked(options, options.lr_range_test_min_lr, optimizer_rate), options_(options) {}

 protected:
  double rate_at(std::int64_t iteration) const override {
    double intervals =
        static_cast<double>(iteration + 1) / static_cast<double>(options_.lr_range_test_step_size);
    if (options_.lr_range_test_staircase) intervals = std::floor(intervals);
    return options_.lr_range_test_min_lr * (1 + options_.lr_range_test_step_rate * intervals);
  }

 private:
  SchedulerOptions options_;
};

class OneCycle : public Clocked {
 public:
  OneCycle(const SchedulerOptions& options, double optimizer_rate)
      : Clocked(options, options.cycle_min_lr, optimizer_rate),
        options_(options),
        first_(options.cycle_first_step_size),
        second_(options.cycle_second_step_size.value_or(first_)),
        first_stairs_(options.cycle_first_stair_count),
        second_stairs_(options.cycle_second_stair_count.value_or(first_stairs_)) {}

  // DeepSpeed's: the first step has the least momentum, though the cycle starts at the most; the
  // second beta is 0.99 whatever the optimizer says.
  std::optional<Betas> betas(std::int64_t applied_step) const override {
    if (!options_.cycle_momentum || (applied_step <= 1 && restored())) return std::nullopt;
    const double momentum =
        applied_step <= 1 ? options_.cycle_min_mom : momentum_at(iteration_of(applied_step));
    if (!(momentum < 1))
      throw ConfigError("scheduler.params.decay_mom_rate: raises the momentum to " +
                        std::to_string(momentum) + " at step " + std::to_string(applied_step) +
                        "; expected a rate that keeps it below 1 to the end of training");
    return Betas{momentum, 0.99};
  }

 protected:
  double rate_at(std::int64_t iteration) const override {
    const double least = options_.cycle_min_lr;
    if (iteration < first_ + second_)
      return least + (options_.cycle_max_lr - least) * height(iteration + 1);
    if (options_.decay_step_size == 0) return least;
    return least / (1 + options_.decay_lr_rate * decayed(iteration));
  }

 private:
  double momentum_at(std::int64_t iteration) const {
    const double most = options_.cycle_max_mom;
    if (iteration < first_ + second_)
      return most - (most - options_.cycle_min_mom) * height(iteration + 1);
    if (options_.decay_step_size == 0) return most;
    return most * (1 + options_.decay_mom_rate * decayed(iteration));
  }

  // In units of decay_step_size.
  double decayed(std::int64_t iteration) const {
    return static_cast<double>(iteration - first_ - second_ + 1) /
           static_cast<double>(options_.decay_step_size);
  }

  // Between 0 and 1, of the step with this number in the cycle, counted from 1.
  double height(std::int64_t step) const {
    const auto length = static_cast<double>(first_ + second_);
    const double top = static_cast<double>(first_) / length;
    const double turns = 1 + static_cast<double>(step) / length;
    const double place = turns - std::floor(turns);
    const std::int64_t within = step % (first_ + second_);
    if (place <= top) return first_stairs_ > 0 ? stair(first_stairs_, within, first_) : place / top;
    if (second_stairs_ > 0) return stair(second_stairs_, first_ + second_ - within, second_);
    return (place - 1) / (top - 1);
  }

  static double stair(std::int64_t count, std::int64_t step, std::int64_t steps) {
    const auto stairs = static_cast<double>(count);
    return std::floor(stairs * static_cast<double>(step) / static_cast<double>(steps)) / stairs;
  }

  SchedulerOptions options_;
  std::int64_t first_, second_, first_stairs_, second_stairs_;
};

// Problems of one set of options, one a line.
class Problems {
 public:
  void require(bool holds, const std::string& message) {
    if (holds) return;
    if (!text_.empty()) text_ += '\n';
    text_ += "scheduler.params." + message;
  }
  void throw_if_any() const {
    if (!text_.empty()) throw ConfigError(text_);
  }

 private:
  std::string text_;
};

void check_warmup(const SchedulerOptions& options, Problems& problems) {
  const auto require = [&](bool holds, const std::string& message) {
    problems.require(holds, message);
  };
  require(options.warmup_num_steps > 0, "warmup_num_steps: expected a positive integer, got " +
                                            std::to_string(options.warmup_num_steps));
  require(options.warmup_type == "log" || options.warmup_type == "linear",
          "warmup_type: unknown \"" + options.warmup_type + "\"; expected log or linear");
  require(options.type == "WarmupLR" || options.total_num_steps > 0,
          "total_num_steps: " + options.type + " needs the number of steps, a positive integer");
}

void check_cycle(const SchedulerOptions& options, Problems& problems) {
  const auto not_negative = [&](const char* name, std::int64_t value) {
    problems.require(value >= 0,
                     std::string(name) + ": expected 0 or more, got " + std::to_string(value));
  };
  problems.require(options.cycle_first_step_size > 0,
                   "cycle_first_step_size: expected a positive integer, got " +
                       std::to_string(options.cycle_first_step_size));
  not_negative("cycle_second_step_size", options.cycle_second_step_size.value_or(0));
  constexpr std::int64_t most = std::int64_t{1} << 53;  // counts stay exact as doubles
  problems.require(
      options.cycle_first_step_size <= most && options.cycle_second_step_size.value_or(0) <= most,
      "cycle_first_step_size, cycle_second_step_size: expected at most 2^53");
  not_negative("cycle_first_stair_count", options.cycle_first_stair_count);
  not_negative("cycle_second_stair_count", options.cycle_second_stair_count.value_or(0));
  not_negative("decay_step_size", options.decay_step_size);
  for (const auto& [name, value] : {std::pair{"cycle_min_mom", options.cycle_min_mom},
                                    std::pair{"cycle_max_mom", options.cycle_max_mom}})
    problems.require(
        value >= 0 && value < 1,
        std::string(name) + ": expected 0 <= momentum < 1, got " + std::to_string(value));
}

// All problems at once, one a line.
void check(const SchedulerOptions& options) {
  Problems problems;
  if (options.type == "OneCycle")
    check_cycle(options, problems);
  else if (options.type == "LRRangeTest")
    problems.require(options.lr_range_test_step_size > 0,
                     "lr_range_test_step_size: expected a positive integer, got " +
                         std::to_string(options.lr_range_test_step_size));
  else
    check_warmup(options, problems);
  problems.require(options.last_batch_iteration >= -1,
                   "last_batch_iteration: expected -1 or more, got " +
                       std::to_string(options.last_batch_iteration));
  problems.throw_if_any();
}

bool known(const std::string& type) {
  for (const char* name :
       {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest", "OneCycle"})
    if (type == name) return true;
  return false;
}

}  // namespace

std::unique_ptr<LrSchedule> create_lr_schedule(const SchedulerOptions& options,
                                               double optimizer_learning_rate) {
  const std::string& type = options.type;
  if (type.empty()) return std::make_unique<Constant>(optimizer_learning_rate);
  if (!known(type))
    throw ConfigError("scheduler.type: unknown \"" + type +
                      "\"; expected WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest or "
                      "OneCycle, in this spelling, or no scheduler for a constant rate");
  check(options);
  if (type == "LRRangeTest") return std::make_unique<LrRangeTest>(options, optimizer_learning_rate);
  if (type == "OneCycle") return std::make_unique<OneCycle>(options, optimizer_learning_rate);
  if (type == "WarmupCosineLR")
    return std::make_unique<WarmupCosineLr>(options, optimizer_learning_rate);
  // The two differ in their default: the optimizer's rate, and a fixed one.
  const double fallback = type == "WarmupLR" ? optimizer_learning_rate : 0.001;
  const Bounds bounds{options.warmup_min_lr, options.warmup_max_lr.value_or(fallback)};
  if (type == "WarmupLR")
    return std::make_unique<WarmupLr>(options, bounds, optimizer_learning_rate);
  return std::make_unique<WarmupDecayLr>(options, bounds, optimizer_learning_rate);
}

}  // namespace zero::optim
