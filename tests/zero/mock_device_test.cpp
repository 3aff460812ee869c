// The schedule of a device whose streams run independently of the host, in the worst order that the
// events allow: the bits are those of the CPU.
#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "tests/support/hybrid_rows.h"
#include "tests/support/mirrored_toy.h"
#include "tests/support/mock_ranks.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "zero/testing.h"

namespace {

constexpr int steps = 6;
const mock::Training training{{}, steps};

void compare(int ranks, const zero::Config& config) {
  const toy::Trace expected = training.on_host(ranks, config);
  REQUIRE(expected.losses.size() == steps);
  REQUIRE(expected.losses.back() != expected.losses.front());
  training.compare(ranks, expected, config,
                   {mock::Order::compute_first, mock::Order::communication_first,
                    mock::Order::random, mock::Order::random});
}

}  // namespace

TEST_CASE("a device gives the CPU's bits at every stage, in any order of its streams") {
  for (const int ranks : {1, 2, 3})
    for (const int stage : {0, 1, 2, 3}) compare(ranks, toy::config(stage, {}));
}

TEST_CASE("the same in bf16 with three micro steps, and without resharding") {
  for (const int ranks : {1, 2, 4})
    for (const int stage : {0, 2, 3}) {
      zero::Config config = toy::config(stage, {}, 3);
      config.bf16_enabled = true;
      config.zero_core.gradient_sync = zero::GradientSync::each;
      config.zero_core.reshard_after_forward = stage == 2;
      compare(ranks, config);
    }
}

TEST_CASE("the same with other dtypes on the wire and at rest, and divided before the sum") {
  struct Types {
    zero::DType compute, wire, rest;
  };
  using enum zero::DType;
  for (const Types& types : {Types{bf16, fp32, fp32}, Types{bf16, bf16, fp32},
                             Types{bf16, fp16, bf16}, Types{fp32, bf16, fp32}})
    for (const int stage : {0, 1, 2, 3}) {
      zero::Config config = toy::config(stage, {}, 2);
      config.bf16_enabled = types.compute == bf16;
      config.communication_data_type = types.wire;
      config.grad_accum_dtype = types.rest;
      config.prescale_gradients = types.wire == bf16;
      CAPTURE(name_of(types.wire));
      CAPTURE(name_of(types.rest));
      compare(2, config);
    }
}

TEST_CASE("devices have the bits of one CPU rank if sums do not depend on the ranks") {
  const toy::Dims d;
  for (const auto& [bf16, group] : {std::pair{false, 1}, {true, 1}, {true, 2}})
    for (const int stage : {0, 2, 3}) {
      zero::Config config = toy::config(stage, d);
      config.bf16_enabled = bf16;
      config.batch = {5 * d.batch, d.batch, 0};
      config.zero_core.rank_independent = config.zero_core.deterministic = true;
      config.zero_core.rank_independent_group = group;
      config.zero_optimization.reduce_bucket_size = stage == 2 ? 300 : 1'000'000;
      const toy::Trace expected = training.on_host(1, config);
      for (const int ranks : {1, 2, 3, 4})
        training.compare(
            ranks, expected, config,
            {mock::Order::compute_first, mock::Order::communication_first, mock::Order::random});
    }
}

TEST_CASE("devices that repeat micro batches have the bits of a CPU rank that does not") {
  const toy::Dims d;
  for (const int stage : {0, 2, 3})
    for (const auto device : {zero::OffloadDevice::none, zero::OffloadDevice::cpu}) {
      if (stage == 0 && device == zero::OffloadDevice::cpu) continue;
      zero::Config config = toy::config(stage, d);
      config.bf16_enabled = stage == 2;
      config.batch = {5 * d.batch, d.batch, 0};
      config.zero_core.rank_independent = config.zero_core.deterministic = true;
      const toy::Trace expected = training.on_host(1, config);
      config.zero_optimization.offload_optimizer.device = device;
      config.zero_core.recompute_every = 2;
      for (const int ranks : {1, 2, 3})
        training.compare(
            ranks, expected, config,
            {mock::Order::compute_first, mock::Order::communication_first, mock::Order::random});
    }
}

TEST_CASE("a device that computes a micro batch otherwise is named before the update") {
  for (const int stage : {0, 3})
    for (const int culprit : {0, 2}) {
      const auto train = [&](zero::Runtime& runtime) {
        const toy::Dims d;
        zero::Config config = toy::config(stage, d);
        config.batch = {3 * d.batch, d.batch, 0};
        config.zero_core.rank_independent = config.zero_core.deterministic = true;
        config.zero_core.recompute_every = 2;
        zero::Engine engine(runtime, toy::describe(d), config);
        engine.initialize(toy::fill);
        toy::Activations a = toy::make_activations(d);
        for (int step = 1; step <= 4; ++step) {
          for (zero::MicroStep micro : engine.micro_steps()) {
            const bool wrong = step == 2 && runtime.rank() == culprit && micro.index() == 0;
            toy::load_samples(d, a, micro.number() * d.batch);
            toy::mirrored_micro_step<float>(runtime, engine, d, a, wrong ? 1.0001f : 1.f);
            micro.loss(1);
          }
          engine.step();
          CHECK(step < 2);
        }
      };
      const std::string message = zero::tests::refusal<zero::NumericError>(
          [&] { mock::run_ranks(3, mock::Order::random, 5, train); });
      CHECK(zero::tests::contains(message, "rank " + std::to_string(culprit) + " (host "));
      CHECK(zero::tests::contains(
          message, "of step 2 otherwise than other ranks did, first in the gradient of unit "));
    }
}

TEST_CASE("the same with parameters and gradients in wire formats") {
  for (const int ranks : {2, 3})
    for (const int stage : {1, 2, 3}) {
      zero::Config config = toy::config(stage, {}, 2);
      config.bf16_enabled = stage == 3;
      config.zero_core.wire.reduce = "int4";
      config.zero_core.wire.gather = "int8";
      compare(ranks, config);
    }
}

TEST_CASE("the same with ZeRO++'s keys, in two hops") {
  zero::Config config = toy::config(3, {}, 2);
  config.zero_core.reduce_group_size = 2;
  config.zero_optimization.hpz_partition_size = 2;
  config.zero_optimization.quantized_weights = true;
  config.zero_optimization.quantized_gradients = true;
  compare(4, config);
}

TEST_CASE(
    "Lamb, Muon and Adafactor have the CPU's bits on a device, and so have groups of several "
    "rules") {
  for (const int ranks : {1, 2, 3})
    for (const char* type : {"Lamb", "Muon", "Adafactor", "SGD"})
      for (const int stage : {0, 1, 3}) {
        CAPTURE(type);
        zero::Config config = toy::config(stage, {});
        config.optimizer = zero::optim::default_options(type);
        config.optimizer.learning_rate = 0.01;
        config.optimizer.weight_decay = 0.1;
        config.bf16_enabled = stage != 1;
        if (config.optimizer.type == "SGD") config.zero_core.param_groups["biases"].momentum = 0.9;
        compare(ranks, config);
      }
}

TEST_CASE("values that a step gives groups reach a device that is a step behind") {
  const mock::Training changing{{.options_of = toy::values_by_group}, steps};
  for (const int ranks : {1, 3})
    for (const int stage : {0, 1, 3}) {
      const zero::Config config = toy::config(stage, {});
      const toy::Trace expected = changing.on_host(ranks, config);
      CHECK(expected.digest != training.on_host(ranks, config).digest);
      changing.compare(ranks, expected, config, {mock::Order::compute_first, mock::Order::random});
    }
}

TEST_CASE("master weights and states of 16 bits have the CPU's bits on a device, by every rule") {
  const auto config_of = [](const char* type, int stage, int variant) {
    zero::Config config = toy::config(stage, {});
    config.fp16_enabled = config.fp16_master_weights_and_grads = variant == 2;
    config.bf16_enabled = config.bf16_master_weights_and_grads = variant != 2;
    config.bf16_optimizer_states = variant == 1;
    config.loss_scale.initial_scale_power = 8;
    config.optimizer = zero::optim::default_options(type);
    config.optimizer.learning_rate = 0.02;
    config.optimizer.weight_decay = 0.1;
    if (config.optimizer.type == "SGD") config.optimizer.momentum = 0.9;
    return config;
  };
  for (const char* type : {"AdamW", "Adam", "SGD", "Lion", "Adagrad", "Lamb", "Muon", "Adafactor"})
    for (const int variant : {0, 1, 2}) {
      CAPTURE(type);
      CAPTURE(variant);
      const toy::Trace expected = training.on_host(2, config_of(type, 1, variant));
      REQUIRE(expected.losses.back() != expected.losses.front());
      for (const int stage : {0, 1, 3})
        training.compare(2, expected, config_of(type, stage, variant), {mock::Order::random});
    }
}

TEST_CASE("fp16: the loss scale lives on the device, and falls and grows as on the CPU") {
  for (const int ranks : {1, 2})
    for (const int stage : {0, 3}) {
      const zero::Config config = toy::overflowing_config(stage, {});
      const toy::Trace expected = training.on_host(ranks, config);
      CHECK(std::isinf(expected.norms.front()));
      CHECK(expected.scales.back() != expected.scales.front());
      for (const auto order : {mock::Order::compute_first, mock::Order::random})
        CHECK(training.on_mock(ranks, config, order, 7) == expected);
    }
}

TEST_CASE("fp16: the host's loss scale waits for the device's") {
  toy::Trace expected, trace;
  const zero::Config config = toy::overflowing_config(2, {});
  const auto train_into = [&](toy::Trace& to) {
    return [&](zero::Runtime& runtime) {
      toy::Trace own = toy::mirrored_train(runtime, {}, config, steps);
      if (runtime.is_root()) to = std::move(own);
    };
  };
  zero::testing::run_ranks(2, train_into(expected));
  mock::run_ranks(2, mock::Order::random, 9, train_into(trace));
  CHECK(expected.scales.back() != expected.scales.front());
  CHECK(trace == expected);
}

TEST_CASE("a device's checkpoint resumes on a device and on the CPU, to the bit") {
  constexpr int saved = 4;
  const zero::Config config = toy::overflowing_config(3, {});
  for (const int ranks : {1, 2}) {
    const zero::tests::TemporaryDirectory directory;
    toy::Trace expected;
    mock::run_ranks(ranks, mock::Order::random, 11, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe({}), config);
      engine.initialize(toy::fill);
      mock::train_until(runtime, engine, saved);
      CHECK(engine.save_checkpoint(directory / "all").wait());
      const toy::Trace rest = mock::train_until(runtime, engine, 2 * saved);
      if (runtime.is_root()) expected = rest;
    });
    const auto go_on = [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe({}), config);
      engine.resume(directory / "all");
      const toy::Trace rest = mock::train_until(runtime, engine, 2 * saved);
      if (runtime.is_root()) CHECK(rest == expected);
    };
    mock::run_ranks(ranks, mock::Order::communication_first, 12, go_on);
    zero::testing::run_ranks(ranks, go_on);
  }
}

TEST_CASE(
    "in the steady state the host waits for decisions of steps before, and for nothing else") {
  for (const int ranks : {1, 2})
    for (const int stage : {0, 1, 2, 3})
      mock::run_ranks(ranks, mock::Order::compute_first, 1, [&](zero::Runtime& runtime) {
        const toy::Dims d;
        toy::Activations a = toy::make_activations(d);  // outlives the queued work
        float loss = 0;
        const mock::Launcher launch(runtime);
        zero::Engine engine(runtime, toy::describe(d), toy::config(stage, d, 2));
        engine.initialize(toy::fill);
        auto& scheduler = static_cast<mock::Device&>(runtime.core().device()).scheduler();
        std::optional<zero::StepTicket> previous;
        for (int step = 0; step < 5; ++step) {
          const int waits = scheduler.waits();
          for (zero::MicroStep micro : engine.micro_steps()) {
            launch([&d, &a] { toy::load_samples(d, a, 0); });
            mock::queue_micro_step<float>(engine, d, a, micro, &loss, launch);
          }
          const zero::StepTicket ticket = engine.step();
          if (previous) previous->wait();
          previous = ticket;
          if (step > 1) CHECK(scheduler.waits() - waits <= 1);
        }
      });
}

TEST_CASE("the program of the GPU tests has the CPU's bits on a mock device") {
  for (const int stage : {0, 3}) {
    zero::Config config = toy::config(stage, {}, 2);
    config.bf16_enabled = true;
    toy::Trace expected, trace;
    zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
      toy::Trace own = toy::mirrored_train(runtime, {}, config, 3);
      if (runtime.is_root()) expected = std::move(own);
    });
    mock::run_ranks(2, mock::Order::random, 5, [&](zero::Runtime& runtime) {
      toy::Trace own = toy::mirrored_train(runtime, {}, config, 3);
      if (runtime.is_root()) trace = std::move(own);
    });
    CHECK(trace == expected);
  }
}

TEST_CASE("a gradient that is not finite skips the step on the device, and does not count") {
  mock::run_ranks(2, mock::Order::random, 3, [](zero::Runtime& runtime) {
    const toy::Dims d;
    zero::Engine engine(runtime, toy::describe(d), toy::config(2, d));
    engine.initialize(toy::fill);
    toy::Activations a = toy::make_activations(d);
    const auto step = [&](bool spoil) {
      for (zero::MicroStep micro : engine.micro_steps()) {
        toy::load_samples(d, a, runtime.rank() * d.batch);
        toy::mirrored_micro_step<float>(runtime, engine, d, a,
                                        spoil && runtime.rank() == 1 ? INFINITY : 1.f);
        micro.loss(1);
      }
      return engine.step();
    };
    const zero::StepTicket first = step(false), second = step(true), third = step(false);
    CHECK_FALSE(first.wait().skipped);
    CHECK(second.wait().skipped);
    CHECK(std::isinf(second.wait().grad_norm));
    CHECK_FALSE(third.wait().skipped);
    CHECK(engine.step_count() == 3);
  });
}

TEST_CASE("ranks that differ apply nothing; the ticket and a later step say so on all ranks") {
  for (const int late : {0, 1}) {
    CAPTURE(late);
    CHECK_THROWS_WITH_AS(
        mock::run_ranks(2, mock::Order::communication_first, 1,
                        [&](zero::Runtime& runtime) {
                          const toy::Dims d;
                          zero::Engine engine(runtime, toy::describe(d), toy::config(1, d));
                          engine.initialize(toy::fill);
                          toy::Activations a = toy::make_activations(d);
                          for (int s = 0; s < 4; ++s) {
                            for (zero::MicroStep micro : engine.micro_steps()) {
                              toy::load_samples(d, a, 0);
                              toy::mirrored_micro_step<float>(runtime, engine, d, a);
                              micro.loss(1);
                            }
                            const auto ticket =
                                engine.step({.learning_rate = runtime.rank() + 1.0});
                            if (late == 0) ticket.wait();
                          }
                        }),
        doctest::Contains(
            "before step 1 ranks differ in learning rate: rank 0 has 1, rank 1 has 2;"),
        zero::DisagreementError);
  }
}

namespace {

struct Seen {
  std::vector<double> norms, losses;
  std::uint64_t digest = 0;
  bool operator==(const Seen&) const = default;
};

// Trains five steps; the program leaves the second unchanged, skips the third and changes the
// fourth.
Seen train_with_inspection(zero::Runtime& runtime, const zero::Config& config) {
  const toy::Dims d;
  zero::Engine engine(runtime, toy::describe(d), config);
  engine.initialize(toy::fill);
  toy::Activations a = toy::make_activations(d);
  Seen seen;
  zero::StepOptions look, skip, halve;
  look.inspect = [&](zero::Gradients& gradients) {
    seen.norms.insert(seen.norms.end(), {gradients.norm(), gradients.norm("block.1.weight")});
    seen.losses.push_back(gradients.loss());
    return zero::Decision::apply;
  };
  skip.inspect = [](zero::Gradients&) { return zero::Decision::skip; };
  halve.inspect = [&](zero::Gradients& gradients) {
    gradients.edit([](zero::ParamShard shard) {
      for (float& value : shard.values) value *= 0.5f;
    });
    return look.inspect(gradients);
  };
  std::vector<zero::StepTicket> tickets;
  for (const zero::StepOptions& options : {zero::StepOptions(), look, skip, halve, {}}) {
    for (zero::MicroStep micro : engine.micro_steps()) {
      toy::load_samples(d, a, runtime.rank() + 10 * std::ssize(tickets));
      toy::mirrored_micro_step<float>(runtime, engine, d, a);
      micro.loss(1.0 + runtime.rank());
    }
    tickets.push_back(engine.step(options));
  }
  for (const zero::StepTicket& ticket : tickets) seen.norms.push_back(ticket.wait().grad_norm);
  CHECK(tickets[2].wait().skipped);
  CHECK(!tickets[3].wait().skipped);
  seen.digest = engine.digest();
  return seen;
}

}  // namespace

TEST_CASE("a program sees and changes gradients on a device as on the CPU") {
  for (const int ranks : {1, 2, 3})
    for (const int stage : {0, 1, 2, 3}) {
      Seen expected;
      zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
        const Seen own = train_with_inspection(runtime, toy::config(stage, {}, 2));
        if (runtime.is_root()) expected = own;
      });
      REQUIRE(expected.losses.size() == 2);
      for (const auto device : {zero::OffloadDevice::none, zero::OffloadDevice::cpu}) {
        if (stage == 0 && device == zero::OffloadDevice::cpu) continue;
        CAPTURE(ranks);
        CAPTURE(stage);
        CAPTURE(static_cast<int>(device));
        zero::Config config = toy::config(stage, {}, 2);
        config.zero_optimization.offload_optimizer.device = device;
        mock::run_ranks(ranks, mock::Order::random, 7, [&](zero::Runtime& runtime) {
          const Seen own = train_with_inspection(runtime, config);
          if (runtime.is_root()) CHECK((own == expected));
        });
      }
    }
}

TEST_CASE("a profiler's ranges end with their scopes, and a wait for a device names its rank") {
  std::array<std::string, 2> said;
  mock::run_ranks(2, mock::Order::random, 1, [&](zero::Runtime& runtime) {
    const toy::Dims d;
    auto& device = static_cast<mock::Device&>(runtime.core().device());
    {
      zero::Engine engine(runtime, toy::describe(d), toy::config(3, d));
      engine.initialize(toy::fill);
      toy::Activations a = toy::make_activations(d);
      for (zero::MicroStep micro : engine.micro_steps()) {
        toy::load_samples(d, a, 0);
        toy::mirrored_micro_step<float>(runtime, engine, d, a);
        micro.loss(1);
      }
      engine.step().wait();
      CHECK(device.ranges() > 10);
      CHECK(device.open_ranges() == 0);
    }
    try {
      device.waits().stall();
    } catch (const zero::StalledError& error) {
      said[static_cast<std::size_t>(runtime.rank())] = error.what();
    }
  });
  for (const std::size_t rank : {0, 1})
    CHECK(said[rank].starts_with("rank " + std::to_string(rank) + ": waited "));
}

TEST_CASE("hybrid strategies have the CPU's bits on a device, which are those of stage 0") {
  for (const auto& [ranks, group] : {std::pair{4, 2}, {6, 3}})
    for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last}) {
      zero::Config base = toy::config(0, {}, ranks == 4 ? 3 : 1);
      base.zero_core.gradient_sync = sync;
      base.bf16_enabled = ranks == 4;
      const toy::Trace expected = training.on_host(ranks, hybrid::with_sums_of(base, group));
      for (const hybrid::Row& row : hybrid::rows) {
        CAPTURE(std::string(row.name));
        training.compare(
            ranks, expected, hybrid::in_groups(base, row, group),
            {mock::Order::compute_first, mock::Order::communication_first, mock::Order::random});
      }
    }
}

TEST_CASE("a program changes gradients of hybrid strategies, on a device and on CPU ranks") {
  const zero::Config base = toy::config(0, {}, 2);
  Seen expected;
  zero::testing::run_ranks(4, [&](zero::Runtime& runtime) {
    const Seen own = train_with_inspection(runtime, hybrid::with_sums_of(base, 2));
    if (runtime.is_root()) expected = own;
  });
  for (const hybrid::Row& row : hybrid::rows) {
    CAPTURE(std::string(row.name));
    zero::Config config = hybrid::in_groups(base, row, 2);
    config.zero_core.gradient_sync = zero::GradientSync::last;
    const auto compare = [&](zero::Runtime& runtime) {
      const Seen own = train_with_inspection(runtime, config);
      if (runtime.is_root()) CHECK((own == expected));
    };
    zero::testing::run_ranks(4, compare);
    mock::run_ranks(4, mock::Order::random, 7, compare);
  }
}
