// Hybrid strategies: parameters are sharded inside groups of ranks, and the groups replicate each
// other. If sums are taken inside the same groups first, all strategies have the bits of stage 0.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/support/hybrid_rows.h"
#include "tests/support/plan_traffic.h"
#include "tests/support/toy_ranks.h"
#include "zero/plan/engine_plan.h"
#include "zero/runtime/strict_mode.h"

namespace {

using hybrid::in_groups;
using hybrid::Row;
using hybrid::rows;

constexpr int steps = 12, nested_steps = 4;

void compare_rows(int ranks, const zero::Config& base) {
  for (int group = 1; group <= ranks; ++group) {
    if (ranks % group != 0) continue;
    CAPTURE(ranks);
    CAPTURE(group);
    const toy::Trace expected = toy::train_ranks(ranks, hybrid::with_sums_of(base, group), steps);
    CHECK(std::ranges::min(expected.losses) < expected.losses.front());
    for (const Row& row : rows) {
      const char* executor = row.over_all_ranks == row.reshards ? "worker" : "inline";
      CAPTURE(std::string(row.name));
      zero::Config config = in_groups(base, row, group);
      if (group == 1 || group == ranks) config.zero_core.reduce_group_size = group;
      const toy::Trace trace = toy::train_ranks(ranks, config, steps, executor);
      CHECK(trace.losses == expected.losses);
      CHECK(trace.norms == expected.norms);
      CHECK(trace.digest == expected.digest);
    }
  }
}

}  // namespace

TEST_CASE("hybrid strategies have the bits of stage 0 with sums in the same groups") {
  for (const int ranks : {4, 6, 8})
    for (const bool bf16 : {false, true}) {
      if (ranks == 8 && !bf16) continue;
      zero::Config config = toy::config(0, {});
      config.bf16_enabled = bf16;
      compare_rows(ranks, config);
    }
}

TEST_CASE("hybrid on eight ranks, whose sums are formed in nested groups") {
  // Shard groups of four on nodes of two; and groups of two, with sums over pairs of groups.
  for (const int group : {4, 2})
    for (const bool accumulates : {false, true}) {
      CAPTURE(group);
      CAPTURE(accumulates);
      zero::Config nested = hybrid::with_sums_of(toy::config(0, {}, accumulates ? 3 : 1), 2);
      nested.zero_core.wider_reduce_groups = {4};
      nested.zero_core.gradient_sync = zero::GradientSync::each;
      nested.bf16_enabled = true;
      if (accumulates) nested.grad_accum_dtype = zero::DType::fp32;
      const toy::Trace expected = toy::train_ranks(8, nested, nested_steps);
      for (const Row& row : rows) {
        CAPTURE(std::string(row.name));
        zero::Config config = in_groups(nested, row, group);
        config.zero_core.reduce_group_size = 2;
        CHECK(toy::train_ranks(8, config, nested_steps) == expected);
      }
      zero::Config flat = nested;
      flat.zero_core.wider_reduce_groups.clear();
      CHECK(toy::train_ranks(8, flat, nested_steps).digest != expected.digest);
    }
}

TEST_CASE("gradient_sync inner in nested groups sums in those of the shard groups first") {
  zero::Config nested = hybrid::with_sums_of(toy::config(3, {}, 3), 2);
  nested.zero_core.wider_reduce_groups = {4};
  nested.zero_core.gradient_sync = zero::GradientSync::inner;
  nested.bf16_enabled = true;
  nested.grad_accum_dtype = zero::DType::fp32;
  toy::Trace traces[2];
  for (const int group : {4, 2}) {
    CAPTURE(group);
    zero::Config stage = nested;
    if (group == 2) stage.zero_core.inner_group_size = group;  // the default is the largest
    const toy::Trace expected = traces[group == 2] = toy::train_ranks(8, stage, nested_steps);
    stage.zero_core.inner_group_size = group;
    for (const int number : {0, 2}) {
      CAPTURE(number);
      stage.zero_optimization.stage = number;
      CHECK(toy::train_ranks(8, stage, nested_steps, "worker") == expected);
    }
    for (const Row& row : rows) {
      CAPTURE(std::string(row.name));
      zero::Config config = in_groups(nested, row, group);
      config.zero_core.reduce_group_size = 2;
      CHECK(toy::train_ranks(8, config, nested_steps) == expected);
    }
  }
  CHECK(traces[0] != traces[1]);
}

TEST_CASE("gradient_sync inner that has nothing to add up needs no groups") {
  zero::Config config = hybrid::with_sums_of(toy::config(2, {}), 2);
  const toy::Trace expected = toy::train_ranks(3, config, nested_steps);
  config.zero_core.gradient_sync = zero::GradientSync::inner;
  CHECK(toy::train_ranks(3, config, nested_steps) == expected);
}

TEST_CASE("hybrid with three micro steps, synchronized in each or in the last") {
  for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last})
    for (const bool bf16 : {false, true}) {
      zero::Config config = toy::config(0, {}, 3);
      config.zero_core.gradient_sync = sync;
      config.bf16_enabled = bf16;
      if (bf16) config.grad_accum_dtype = zero::DType::fp32;
      compare_rows(4, config);
    }
}

TEST_CASE(
    "gradient_sync inner: equal bits over the rows, and the stage that a group of all or one is") {
  for (const bool bf16 : {false, true}) {
    zero::Config config = toy::config(0, {}, 3);
    config.zero_core.gradient_sync = zero::GradientSync::inner;
    config.bf16_enabled = bf16;
    if (bf16) config.grad_accum_dtype = zero::DType::fp32;
    for (const int group : {1, 2, 4}) {
      CAPTURE(group);
      const toy::Trace expected = toy::train_ranks(4, in_groups(config, rows[0], group), steps);
      for (const Row& row : rows) {
        CAPTURE(std::string(row.name));
        CHECK(toy::train_ranks(4, in_groups(config, row, group), steps, "worker") == expected);
      }
      zero::Config stage = hybrid::with_sums_of(config, group);
      for (const int number : {0, 1, 2, 3}) {
        CAPTURE(number);
        stage.zero_optimization.stage = number;
        stage.zero_optimization.reduce_bucket_size = 600;
        CHECK(toy::train_ranks(4, stage, steps, "worker") == expected);
      }
      if (group == 2) continue;
      stage = config;
      stage.zero_core.gradient_sync =
          group == 1 ? zero::GradientSync::last : zero::GradientSync::each;
      CHECK(toy::train_ranks(4, stage, steps) == expected);
    }
  }
}

TEST_CASE("every optimizer under hybrid strategies") {
  for (const char* type : {"Lion", "Adagrad", "Lamb", "SGD", "Muon", "Adafactor"}) {
    CAPTURE(std::string(type));
    zero::Config config = toy::config(0, {}, 2);
    config.optimizer = zero::optim::default_options(type);
    config.optimizer.learning_rate = 0.01;
    config.optimizer.weight_decay = 0.1;
    config.zero_core.gradient_sync = zero::GradientSync::each;
    config.zero_core.reduce_group_size = 2;
    config.zero_core.param_groups["biases"].lr = 0.02;
    const toy::Trace expected = toy::train_ranks(4, config, steps);
    for (const Row& row : rows) {
      CAPTURE(std::string(row.name));
      CHECK(toy::train_ranks(4, in_groups(config, row, 2), steps, "worker") == expected);
    }
  }
}

TEST_CASE("hybrid strategies: units that are reduced in several segments") {
  // A group waits for the sums of the others if they are added to earlier ones, or if the wire has
  // more bits than the sum. ZeRO++'s keys encode only the matrices of a unit.
  for (const int accumulation : {1, 2}) {
    CAPTURE(accumulation);
    zero::Config config = toy::config(3, {}, accumulation);
    config.bf16_enabled = true;
    config.zero_core.gradient_sync = zero::GradientSync::each;
    config.zero_optimization.quantized_weights = true;
    if (accumulation == 1) config.communication_data_type = zero::DType::fp32;
    const toy::Trace expected = toy::train_ranks(4, hybrid::with_sums_of(config, 2), steps);
    for (const Row& row : rows) {
      CAPTURE(std::string(row.name));
      CHECK(toy::train_ranks(4, in_groups(config, row, 2), steps, "worker") == expected);
    }
  }
}

TEST_CASE("second copies that groups share (hpZ) change no bit of stage 3") {
  for (const bool bf16 : {false, true})
    for (const int accumulation : {1, 3}) {
      zero::Config config = toy::config(3, {}, accumulation);
      config.bf16_enabled = bf16;
      for (const int ranks : {4, 6}) {
        const toy::Trace expected = toy::train_ranks(ranks, config, steps);
        for (const int sharing : {1, 2, 3, 4, 6, 9})
          for (const bool reshards : {true, false}) {
            if (sharing < ranks && ranks % sharing != 0) continue;
            CAPTURE(ranks);
            CAPTURE(sharing);
            CAPTURE(reshards);
            zero::Config with_copies = config;
            with_copies.zero_optimization.hpz_partition_size = sharing;
            with_copies.zero_core.reshard_after_forward = reshards;
            with_copies.zero_optimization.param_persistence_threshold = sharing == 2 ? 20 : 0;
            CHECK(toy::train_ranks(ranks, with_copies, steps, "worker") == expected);
          }
      }
    }
}

// Elements per step that are gathered from shards and from second copies, and reduced, including
// padding.
plan_traffic::Traffic traffic_of(const zero::Config& config, int ranks) {
  const zero::detail::EnginePlan plan(toy::describe({}).declared(), config,
                                      {0, ranks, false, zero::detail::strict_mode()});
  return plan_traffic::of(plan.steps.only, plan.layout);
}

// Bytes per rank of fp32 values that are gathered or reduced over this many ranks.
double sent(std::int64_t elements, int over) {
  return 4.0 * static_cast<double>(elements) * (over - 1) / over;
}

TEST_CASE(
    "hybrid strategies send the bytes of their formulas, and take the memory of their plans") {
  constexpr int ranks = 6, group = 2, replicas = 3;
  const auto check = [&](const zero::Config& config, double bytes) {
    zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe({}), config);
      engine.initialize(toy::fill);
      const auto total = [&](const zero::RankReport& report) {
        std::int64_t all = 0;
        for (const zero::TrafficUse& use : report.traffic) all += use.bytes_sent;
        return static_cast<double>(all);
      };
      toy::Activations a = toy::make_activations({});
      for (int step = 0; step < 2; ++step) {
        for (zero::MicroStep micro : engine.micro_steps()) {
          toy::load_samples({}, a, step * runtime.size() + runtime.rank());
          micro.loss(toy::micro_step<float>(engine, {}, a, micro.loss_scale()));
        }
        engine.step();
      }
      const zero::RankReport report = engine.report().ranks[runtime.rank()];
      CHECK(total(report) == 2 * bytes);
      for (const zero::MemoryUse& use : report.memory) CHECK(use.peak == use.planned);
    });
  };
  // Groups that only sum together: sums run inside them in each micro step, and over them in the
  // last. Except in strict mode, summed gradients and updated parameters are gathered once.
  for (const int stage : {0, 2}) {
    if (zero::detail::strict_mode()) break;
    CAPTURE(stage);
    constexpr int micro_steps = 3;
    zero::Config config = hybrid::with_sums_of(toy::config(stage, {}, micro_steps), group);
    config.zero_core.gradient_sync = zero::GradientSync::inner;
    const std::int64_t reduced = traffic_of(toy::config(stage, {}), ranks).reduced;
    check(config, micro_steps * sent(reduced, group) + sent(reduced / group, replicas) +
                      sent(reduced, ranks));
  }
  for (const Row& row : rows) {
    CAPTURE(std::string(row.name));
    const zero::Config config = in_groups(toy::config(3, {}), row, group);
    const auto traffic = traffic_of(config, ranks);
    // Sums of a shard are scattered over the groups, and then sums or new parameters are gathered.
    check(config, sent(traffic.gathered, group) + sent(traffic.reduced, group) +
                      2 * sent(traffic.reduced / group, replicas));
  }
  zero::Config config = toy::config(3, {});
  config.zero_optimization.hpz_partition_size = group;
  const auto traffic = traffic_of(config, ranks);
  CHECK(traffic.regathered > 0);
  check(config, sent(traffic.gathered, ranks) + sent(traffic.regathered, group) +
                    sent(traffic.reduced, ranks));
}

TEST_CASE("groups that do not divide the ranks, or contradict each other, are named") {
  const auto refuse = [](const char* message, const auto& change) {
    zero::Config config = toy::config(3, {}, 2);
    change(config);
    CHECK_THROWS_WITH_AS(toy::train_ranks(4, config, 1), doctest::Contains(message),
                         zero::ConfigError);
  };
  refuse("zero_core.shard_group_size is 3, which does not divide 4 ranks",
         [](auto& c) { c.zero_core.shard_group_size = 3; });
  refuse("zero_core.shard_group_size is 8, which does not divide 4 ranks",
         [](auto& c) { c.zero_core.shard_group_size = 8; });
  CHECK_THROWS_WITH_AS(
      zero::detail::grid_for(in_groups(toy::config(3, {}), rows[0], 0).zero_core, 4, -1),
      doctest::Contains("is \"node\", and nodes have different numbers of ranks"),
      zero::ConfigError);
  refuse("needs zero_optimization.stage 3", [](auto& c) {
    c.zero_optimization.stage = 2;
    c.zero_core.shard_group_size = 2;
  });
  refuse("gradient_sync inner sums in groups of zero_core.reduce_group_size ranks, and 4 ranks",
         [](auto& c) {
           c.zero_core.gradient_sync = zero::GradientSync::inner;
           c.zero_core.reduce_group_size = 3;
         });
  refuse("zero_core.inner_group_size is 3, and sums are formed in the groups of", [](auto& c) {
    c.zero_core.gradient_sync = zero::GradientSync::inner;
    c.zero_core.reduce_group_size = 2;
    c.zero_core.inner_group_size = 3;
  });
  refuse("zero_core.inner_group_size is 4, and gradients are summed in shard groups of 2 ranks",
         [](auto& c) {
           c.zero_core.shard_group_size = 2;
           c.zero_core.inner_group_size = 4;
         });
  refuse(
      "zero_core.inner_group_size is 4, and gradients are summed in nodes of 2 ranks first, as "
      "zero_core.wire.reduce_inside differs",
      [](auto& c) {
        c.zero_core.gradient_sync = zero::GradientSync::inner;
        c.zero_core.reduce_group_size = 2;
        c.zero_core.wider_reduce_groups = {4};
        c.zero_core.inner_group_size = 4;
        c.zero_core.wire.reduce = "int8";
        c.zero_core.wire.reduce_inside = "none";
      });
  refuse("zero_core.inner_group_size has no effect without zero_core.gradient_sync", [](auto& c) {
    c.zero_core.reduce_group_size = 2;
    c.zero_core.inner_group_size = 2;
  });
  refuse("zero_core.reduce_group_size is 4, and zero_core.shard_group_size 2", [](auto& c) {
    c.zero_core.shard_group_size = 2;
    c.zero_core.reduce_group_size = 4;
  });
  refuse("zero_core.reduce_group_size is 1, 4, and zero_core.shard_group_size 2", [](auto& c) {
    c.zero_core.shard_group_size = 2;
    c.zero_core.reduce_group_size = 1;
    c.zero_core.wider_reduce_groups = {4};
  });
  refuse("zero_core.reduce_group_size is [4, 6]: each number has to be a multiple", [](auto& c) {
    c.zero_core.reduce_group_size = 4;
    c.zero_core.wider_reduce_groups = {6};
  });
  refuse("zero_hpz_partition_size is 3, which does not divide 4 ranks",
         [](auto& c) { c.zero_optimization.hpz_partition_size = 3; });
  refuse("zero_hpz_partition_size is 2, and zero_core.shard_group_size (mics_shard_size) 2",
         [](auto& c) {
           c.zero_optimization.hpz_partition_size = 2;
           c.zero_core.shard_group_size = 2;
         });
}
