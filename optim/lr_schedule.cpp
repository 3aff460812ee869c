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

// The clock and the warm-up that the three schedules share.
class Warmup : public LrSchedule {
 public:
  Warmup(const SchedulerOptions& options, double first_rate)
      : warmup_steps_(std::max<std::int64_t>(2, options.warmup_num_steps)),
        logarithmic_(options.warmup_type == "log"),
        start_(options.last_batch_iteration),
        first_rate_(first_rate) {}

  double rate(std::int64_t applied_step) const override {
    return applied_step <= 1 ? first_rate_ : rate_at(start_ + applied_step - 1);
  }

 protected:
  // The scheduler's own count, from 0.
  virtual double rate_at(std::int64_t iteration) const = 0;

  bool warming_up(std::int64_t iteration) const { return iteration < warmup_steps_; }
  double warmup(std::int64_t iteration) const {
    const auto n = static_cast<double>(iteration), steps = static_cast<double>(warmup_steps_);
    return logarithmic_ ? 1.0 / std::log(steps) * std::log(n + 1) : n / steps;
  }
  std::int64_t warmup_steps() const { return warmup_steps_; }

 private:
  std::int64_t warmup_steps_;
  bool logarithmic_;
  std::int64_t start_;
  double first_rate_;
};

struct Bounds {
  double least, most;
};

// With a restored clock the first step keeps the optimizer's own rate, as in DeepSpeed.
double first_rate(const SchedulerOptions& options, double initial, double optimizer_rate) {
  return options.last_batch_iteration == -1 ? initial : optimizer_rate;
}

class WarmupLr : public Warmup {
 public:
  WarmupLr(const SchedulerOptions& options, Bounds bounds, double optimizer_rate)
      : Warmup(options, first_rate(options, bounds.least, optimizer_rate)), bounds_(bounds) {}

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
      : Warmup(options, first_rate(options, 0, optimizer_rate)),
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

// All problems at once, one a line.
void check(const SchedulerOptions& options) {
  std::string problems;
  const auto require = [&](bool holds, const std::string& message) {
    if (holds) return;
    if (!problems.empty()) problems += '\n';
    problems += "scheduler.params." + message;
  };
  require(options.warmup_num_steps > 0, "warmup_num_steps: expected a positive integer, got " +
                                            std::to_string(options.warmup_num_steps));
  require(options.warmup_type == "log" || options.warmup_type == "linear",
          "warmup_type: unknown \"" + options.warmup_type + "\"; expected log or linear");
  require(options.type == "WarmupLR" || options.total_num_steps > 0,
          "total_num_steps: " + options.type + " needs the number of steps, a positive integer");
  require(options.last_batch_iteration >= -1, "last_batch_iteration: expected -1 or more, got " +
                                                  std::to_string(options.last_batch_iteration));
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace

std::unique_ptr<LrSchedule> create_lr_schedule(const SchedulerOptions& options,
                                               double optimizer_learning_rate) {
  const std::string& type = options.type;
  if (type.empty()) return std::make_unique<Constant>(optimizer_learning_rate);
  if (type != "WarmupLR" && type != "WarmupDecayLR" && type != "WarmupCosineLR")
    throw ConfigError("scheduler.type: unknown \"" + type +
                      "\"; expected WarmupLR, WarmupDecayLR or WarmupCosineLR, in this spelling, "
                      "or no scheduler for a constant rate");
  check(options);
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
