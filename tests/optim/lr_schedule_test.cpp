// The values of DeepSpeed 0.19.8, to the printed digits.
#include "optim/lr_schedule.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "zero/base/error.h"

namespace {

using namespace zero;
using namespace zero::optim;

// Checks steps from `first` on.
void check(const SchedulerOptions& options, double optimizer_rate,
           const std::vector<double>& expected, std::int64_t first = 1) {
  const LrSchedule schedule(options, optimizer_rate);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto step = first + static_cast<std::int64_t>(i);
    INFO(options.type << " " << options.warmup_type << ", step " << step);
    CHECK(schedule.rate(step) == doctest::Approx(expected[i]).epsilon(1e-5));
  }
}

SchedulerOptions warmup(const std::string& type, const std::string& warmup_type) {
  SchedulerOptions options;
  options.type = type;
  options.warmup_type = warmup_type;
  options.warmup_max_lr = 1e-3;
  options.warmup_num_steps = 10;
  return options;
}

SchedulerOptions decay(const std::string& warmup_type) {
  SchedulerOptions options = warmup("WarmupDecayLR", warmup_type);
  options.warmup_min_lr = 1e-5;
  options.warmup_num_steps = 5;
  options.total_num_steps = 20;
  return options;
}

SchedulerOptions cosine() {
  SchedulerOptions options;
  options.type = "WarmupCosineLR";
  options.warmup_type = "linear";
  options.warmup_min_ratio = 0.1;
  options.warmup_num_steps = 5;
  options.cos_min_ratio = 0.01;
  options.total_num_steps = 20;
  return options;
}

std::string problem(const SchedulerOptions& options) {
  try {
    LrSchedule(options, 1e-3);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("no scheduler: the optimizer's rate") {
  check({}, 3e-4, {3e-4, 3e-4, 3e-4});
  CHECK(LrSchedule({}, 3e-4).rate(1'000'000) == 3e-4);
}

TEST_CASE("WarmupLR") {
  check(warmup("WarmupLR", "log"), 7,
        {0, 0, 3.0103e-4, 4.77121e-4, 6.0206e-4, 6.9897e-4, 7.78151e-4, 8.45098e-4, 9.0309e-4,
         9.54243e-4, 1e-3, 1e-3});
  check(warmup("WarmupLR", "linear"), 7,
        {0, 0, 1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4, 7e-4, 8e-4, 9e-4, 1e-3, 1e-3});
}

TEST_CASE("WarmupLR without a maximum takes the optimizer's, one step counts as two") {
  SchedulerOptions options = warmup("WarmupLR", "linear");
  options.warmup_max_lr.reset();
  options.warmup_num_steps = 1;
  check(options, 4e-3, {0, 0, 2e-3, 4e-3, 4e-3});
}

TEST_CASE("WarmupDecayLR") {
  check(decay("linear"), 7,
        {1e-5, 1e-5, 2.08e-4, 4.06e-4, 6.04e-4, 8.02e-4, 1e-3, 9.34e-4, 8.68e-4});
  check(decay("linear"), 7, {1.42e-4, 7.6e-5, 1e-5, 1e-5}, 20);
  check(decay("log"), 7, {1e-5, 1e-5, 4.3637e-4, 6.8578e-4, 8.6274e-4, 1e-3, 1e-3, 9.34e-4});
  SchedulerOptions options = decay("linear");
  options.warmup_max_lr.reset();
  check(options, 7, {1e-3}, 7);
}

TEST_CASE("WarmupCosineLR") {
  check(cosine(), 1e-3,
        {0, 1e-4, 2.8e-4, 4.6e-4, 6.4e-4, 8.2e-4, 9.89183e-4, 9.57205e-4, 9.05463e-4, 8.3622e-4,
         7.525e-4});
  check(cosine(), 1e-3, {2.08169e-5, 1e-5, 1e-5}, 20);
}

TEST_CASE("a restored clock starts with the optimizer's rate") {
  SchedulerOptions options = decay("linear");
  options.last_batch_iteration = 4;
  check(options, 7, {7, 1e-3, 9.34e-4});
}

TEST_CASE("fewer steps in all than in the warm-up are allowed") {
  SchedulerOptions options = decay("linear");
  options.total_num_steps = 3;
  check(options, 7, {1e-5, 1e-5, 2.08e-4, 4.06e-4, 6.04e-4, 8.02e-4, 1e-5, 1e-5});
}

TEST_CASE("LRRangeTest") {
  SchedulerOptions options;
  options.type = "LRRangeTest";
  options.lr_range_test_min_lr = 1e-4;
  options.lr_range_test_step_size = 2;
  options.lr_range_test_step_rate = 5;
  check(options, 7, {1e-4, 3.5e-4, 6e-4, 8.5e-4, 1.1e-3, 1.35e-3, 1.6e-3});
  options.lr_range_test_staircase = true;
  check(options, 7, {1e-4, 1e-4, 6e-4, 6e-4, 1.1e-3, 1.1e-3, 1.6e-3});
  options.last_batch_iteration = 2;
  check(options, 7, {7, 1.1e-3, 1.1e-3, 1.6e-3});
  options.lr_range_test_step_size = 0;
  CHECK(has(problem(options), "lr_range_test_step_size"));
}

TEST_CASE("OneCycle") {
  SchedulerOptions options;
  options.type = "OneCycle";
  options.cycle_min_lr = 1e-4;
  options.cycle_max_lr = 1e-3;
  options.cycle_first_step_size = 4;
  options.decay_step_size = 2;
  options.decay_lr_rate = 0.5;
  check(options, 7,
        {1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 1e-3, 7.75e-4, 5.5e-4, 3.25e-4, 1e-4, 8e-5, 6.66667e-5,
         5.71429e-5, 5e-5, 4.44444e-5, 4e-5});
  options.decay_step_size = 0;
  check(options, 7, {1e-4, 1e-4}, 9);
  // Two stairs up, and two down.
  options.cycle_first_stair_count = 2;
  check(options, 7, {1e-4, 1e-4, 5.5e-4, 5.5e-4, 1e-3, 5.5e-4, 5.5e-4, 1e-4, 1e-4});
  options.cycle_second_stair_count = 0;
  check(options, 7, {1e-4, 1e-4, 5.5e-4, 5.5e-4, 1e-3, 7.75e-4, 5.5e-4, 3.25e-4, 1e-4});
  // Without a way back, the top ends the cycle.
  options.cycle_second_step_size = 0;
  options.cycle_first_stair_count = 0;
  check(options, 7, {1e-4, 3.25e-4, 5.5e-4, 7.75e-4, 1e-4, 1e-4});
}

TEST_CASE("OneCycle moves the first beta against the rate") {
  SchedulerOptions options;
  options.type = "OneCycle";
  options.cycle_max_lr = 1e-3;
  options.cycle_first_step_size = 4;
  options.decay_step_size = 2;
  options.decay_mom_rate = 0.1;
  const LrSchedule schedule(options, 7);
  // DeepSpeed's own values, until they leave the range of a momentum.
  const double expected[] = {0.8, 0.875, 0.85, 0.825, 0.8, 0.825, 0.85, 0.875, 0.9, 0.945, 0.99};
  for (std::int64_t step = 1; step <= 11; ++step) {
    CHECK(schedule.betas(step)->first == doctest::Approx(expected[step - 1]).epsilon(1e-12));
    CHECK(schedule.betas(step)->second == 0.99);
  }
  CHECK_THROWS_AS(schedule.betas(12), ConfigError);
  options.cycle_momentum = false;
  CHECK_FALSE(LrSchedule(options, 7).betas(1).has_value());
  options.cycle_momentum = true;
  options.last_batch_iteration = 3;
  CHECK_FALSE(LrSchedule(options, 7).betas(1).has_value());
  CHECK_FALSE(LrSchedule({}, 7).betas(1).has_value());
  options.cycle_max_mom = 1;
  CHECK(has(problem(options), "cycle_max_mom"));
}

TEST_CASE("OneCycle: the first step whose momentum would be 1") {
  SchedulerOptions options;
  options.type = "OneCycle";
  CHECK(!first_step_without_momentum(options));
  options.decay_step_size = 7;
  for (const double rate : {0.1, 0.03, 1.0 / 3, 5.0, 1e-4})
    for (const double most : {0.9, 0.99, 0.5})
      for (const std::int64_t last : {-1, 0, 3, 40})
        for (const std::optional<std::int64_t> second : {std::optional<std::int64_t>(), {5}}) {
          CAPTURE(rate);
          CAPTURE(most);
          CAPTURE(last);
          options.cycle_first_step_size = 10;
          options.cycle_second_step_size = second;
          options.decay_mom_rate = rate;
          options.cycle_max_mom = most;
          options.last_batch_iteration = last;
          const auto step = first_step_without_momentum(options);
          REQUIRE(step);
          const LrSchedule schedule(options, 0.1);
          CHECK_THROWS_AS(schedule.betas(*step), ConfigError);
          if (*step > 2) CHECK_NOTHROW(schedule.betas(*step - 1));
        }
  options.cycle_max_mom = 0;
  CHECK(!first_step_without_momentum(options));
}

TEST_CASE("OneCycle: unusable options") {
  SchedulerOptions options;
  options.type = "OneCycle";
  options.cycle_first_step_size = 0;
  options.cycle_second_step_size = -1;
  options.cycle_first_stair_count = -1;
  options.cycle_second_stair_count = -1;
  options.decay_step_size = -1;
  for (const char* key : {"cycle_first_step_size", "cycle_second_step_size",
                          "cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size"})
    CHECK(has(problem(options), key));
}

TEST_CASE("unusable options are errors that name them") {
  SchedulerOptions options;
  options.type = "warmuplr";
  CHECK(has(problem(options), "WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest or OneCycle"));
  options.type = "CosineAnnealingLR";
  CHECK(has(problem(options), "\"CosineAnnealingLR\""));
  options = decay("cubic");
  options.total_num_steps = 0;
  options.warmup_num_steps = 0;
  options.last_batch_iteration = -2;
  for (const char* key :
       {"total_num_steps", "warmup_num_steps", "log or linear", "last_batch_iteration"})
    CHECK(has(problem(options), key));
  CHECK(problem(warmup("WarmupLR", "log")).empty());
}
