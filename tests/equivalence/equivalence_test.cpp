// Equal bits over stages, schedules, buckets, executors and delays, for every world size.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/toy_ranks.h"
#include "zero/testing.h"

namespace {

constexpr int steps = 20;

struct Variant {
  std::string name;
  std::function<void(zero::Config&)> change;
  const char* executor = "inline";
};

std::vector<Variant> variants() {
  const auto stage = [](int number) {
    return [number](zero::Config& c) { c.zero_optimization.stage = number; };
  };
  const auto stage3 = [](std::function<void(zero::Config&)> more) {
    return [more = std::move(more)](zero::Config& c) {
      c.zero_optimization.stage = 3;
      more(c);
    };
  };
  return {
      {"stage 1", stage(1)},
      {"stage 2", stage(2)},
      {"stage 3", stage(3)},
      {"SHARD_GRAD_OP", stage3([](auto& c) { c.zero_core.reshard_after_forward = false; })},
      {"one slot", stage3([](auto& c) { c.zero_optimization.prefetch_bucket_size = 0; })},
      {"all slots", stage3([](auto& c) { c.zero_optimization.prefetch_bucket_size = 1'000'000; })},
      {"three slots, no reuse", stage3([](auto& c) {
         c.zero_optimization.prefetch_bucket_size = 1500;
         c.zero_optimization.max_reuse_distance = 0;
       })},
      {"persistent parameters",
       stage3([](auto& c) { c.zero_optimization.param_persistence_threshold = 20; })},
      {"small buckets", stage3([](auto& c) {
         c.zero_optimization.reduce_bucket_size = 300;
         c.zero_optimization.allgather_bucket_size = 300;
       })},
      {"stage 0, worker", stage(0), "worker"},
      {"stage 1, worker", stage(1), "worker"},
      {"stage 2, worker", stage(2), "worker"},
      {"stage 3, worker", stage(3), "worker"},
  };
}

// Returns the variants between which an optimizer could see a difference.
std::vector<Variant> placements() {
  std::vector<Variant> chosen;
  for (const Variant& variant : variants())
    for (const char* name : {"stage 1", "stage 2", "stage 3", "SHARD_GRAD_OP", "stage 3, worker"})
      if (variant.name == name) chosen.push_back(variant);
  return chosen;
}

void compare_all(int ranks, const zero::Config& base, const std::vector<Variant>& with = variants(),
                 const toy::Dims& d = {}) {
  const toy::Trace expected = toy::train_ranks(ranks, base, steps, "inline", d);
  CHECK(expected.losses.size() == steps);
  CHECK(*std::min_element(expected.losses.begin(), expected.losses.end()) <
        expected.losses.front());
  for (const Variant& variant : with) {
    CAPTURE(variant.name);
    CAPTURE(ranks);
    zero::Config config = base;
    variant.change(config);
    const toy::Trace trace = toy::train_ranks(ranks, config, steps, variant.executor, d);
    CHECK(trace.losses == expected.losses);
    CHECK(trace.norms == expected.norms);
    CHECK(trace.digest == expected.digest);
  }
}

}  // namespace

TEST_CASE("fp32, one micro step") {
  for (const int ranks : {1, 2, 3, 4}) compare_all(ranks, toy::config(0, {}));
}

TEST_CASE("bf16, one micro step") {
  for (const int ranks : {1, 2, 3, 4}) {
    zero::Config config = toy::config(0, {});
    config.bf16_enabled = true;
    compare_all(ranks, config);
  }
}

TEST_CASE("three micro steps, synchronized in each or in the last") {
  for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last})
    for (const int ranks : {1, 2, 3, 4}) {
      zero::Config config = toy::config(0, {}, 3);
      config.zero_core.gradient_sync = sync;
      // Each number of ranks and each kind of sync with both dtypes, and not every pair of them.
      config.bf16_enabled = (ranks + static_cast<int>(sync)) % 2 == 0;
      compare_all(ranks, config);
    }
}

TEST_CASE("the reduce group decides the bits, not the stage") {
  zero::Config config = toy::config(0, {});
  config.zero_core.reduce_group_size = 2;
  compare_all(4, config);
}

TEST_CASE("every optimizer, with groups of their own") {
  for (const char* type : {"Lion", "Adagrad", "Lamb", "SGD", "Muon", "Adafactor"})
    for (const int ranks : {1, 2, 3, 4}) {
      CAPTURE(type);
      zero::Config config = toy::config(0, {}, 2);
      config.optimizer = zero::optim::default_options(type);
      config.optimizer.learning_rate = 0.01;
      config.optimizer.weight_decay = 0.1;
      config.zero_core.gradient_sync = zero::GradientSync::each;
      config.zero_core.param_groups["biases"].lr = 0.02;
      config.bf16_enabled = ranks % 2 == 0;
      compare_all(ranks, config, placements());
    }
}

TEST_CASE("values that steps give groups, with a rate of 0 in every second one") {
  const toy::Dims changing{.options_of = toy::values_by_group};
  for (const int ranks : {1, 2, 3, 4})
    compare_all(ranks, toy::config(0, {}), placements(), changing);
}

TEST_CASE("random delays around every instruction") {
  for (const int ranks : {2, 3}) {
    zero::Config config = toy::config(0, {}, 2);
    config.zero_core.gradient_sync = zero::GradientSync::each;
    const toy::Trace expected = toy::train_ranks(ranks, config, steps);
    zero::testing::inject_delays(static_cast<std::uint64_t>(ranks), 60);
    for (const int stage : {1, 2, 3})
      for (const char* executor : {"inline", "worker"}) {
        config.zero_optimization.stage = stage;
        CAPTURE(stage);
        CHECK(toy::train_ranks(ranks, config, steps, executor) == expected);
      }
    zero::testing::inject_delays(0, 0);
  }
}
