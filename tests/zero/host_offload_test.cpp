// Optimizer state of GPU ranks in host memory: the CPU's bits, in any order of the device's
// streams, for any ratio, slots, chunks, stage, precision and number of ranks; and the host still
// waits for nothing.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "optim/gradient_norm.h"
#include "tests/support/checkpoint_moves.h"
#include "tests/support/mirrored_toy.h"
#include "tests/zero/host_offload.h"
#include "zero/testing.h"

namespace {

using namespace host_offload;

}  // namespace

TEST_CASE("state in host memory with a device: equal bits at every stage, ratio and rank") {
  for (const int ranks : {1, 2, 3, 4})
    for (const bool bf16 : {false, true}) {
      const toy::Trace expected = training.on_host(ranks, config_of(1, 1, bf16));
      REQUIRE(expected.losses.back() != expected.losses.front());
      for (const int stage : {1, 2, 3})
        for (const double ratio : {0.3, 0.5, 1.})
          if (ranks <= 2 || ratio == 0.5)
            compare(ranks, expected, offloaded(config_of(stage, 1, bf16), ratio));
    }
}

TEST_CASE("the same for every number of slots and size of chunks, with all of it page-locked") {
  const toy::Trace expected = training.on_host(2, config_of(1));
  for (const int buffers : {0, 2, 3, 9})
    for (const std::int64_t bytes : {1, 50'000, 1 << 26}) {
      zero::Config config = offloaded(config_of(buffers % 3 + 1), buffers == 2 ? 0.7 : 1);
      config.zero_optimization.offload_optimizer.buffer_count = buffers;
      config.zero_optimization.offload_optimizer.pin_memory = buffers == 3;
      config.zero_core.offload_chunk_bytes = bytes;
      CAPTURE(buffers);
      CAPTURE(bytes);
      compare(2, expected, config);
    }
}

TEST_CASE("the same with the parameters of stage 3 in host memory too, through any buffers") {
  for (const int ranks : {1, 2, 3})
    for (const bool bf16 : {false, true}) {
      const toy::Trace expected = training.on_host(ranks, config_of(3, 2, bf16));
      for (const int buffers : {1, 2, 5}) {
        zero::Config config = with_parameters(offloaded(config_of(3, 2, bf16)), buffers);
        config.zero_optimization.offload_optimizer.pin_memory = buffers == 2;
        config.zero_core.reshard_after_forward = buffers != 1;
        if (buffers == 5) config.zero_core.offload_chunk_bytes = 50'000;
        CAPTURE(buffers);
        compare(ranks, expected, config);
      }
    }
}

TEST_CASE("the same over several micro steps, synchronized in each or at the end") {
  for (const int ranks : {1, 3})
    for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last})
      for (const bool sums_fp32 : {false, true}) {
        zero::Config config = config_of(1, 3);
        config.zero_core.gradient_sync = sync;
        if (sums_fp32) config.grad_accum_dtype = zero::DType::fp32;
        const toy::Trace expected = training.on_host(ranks, config);
        for (const int stage : {1, 2, 3}) {
          config.zero_optimization.stage = stage;
          compare(ranks, expected, offloaded(config, stage == 2 ? 0.5 : 1));
        }
      }
}

TEST_CASE(
    "the same with other dtypes on the wire and at rest, of gradients that are not added up") {
  using enum zero::DType;
  for (const int ranks : {1, 2})
    for (const auto& [wire, rest] : {std::pair{bf16, fp32}, {fp32, bf16}, {fp16, bf16}}) {
      zero::Config config = config_of(2);
      config.communication_data_type = wire;
      config.grad_accum_dtype = rest;
      config.prescale_gradients = true;
      const toy::Trace expected = training.on_host(ranks, config);
      for (const int stage : {1, 2, 3}) {
        config.zero_optimization.stage = stage;
        compare(ranks, expected, offloaded(config, stage == 3 ? 0.5 : 1));
      }
    }
}

TEST_CASE("the same with every rule that sees elements, and with groups of their own rates") {
  for (const char* type : {"Adam", "SGD", "Lion", "Adagrad"}) {
    const zero::Config config = with_rule(config_of(2), type);
    CAPTURE(type);
    compare(2, training.on_host(2, config), offloaded(config, 0.6));
  }
}

TEST_CASE("the same with master weights and states of 16 bits") {
  for (const bool states : {false, true}) {
    zero::Config config = config_of(1);
    config.bf16_master_weights_and_grads = true;
    config.bf16_optimizer_states = states;
    const toy::Trace expected = training.on_host(2, config);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(states);
      config.zero_optimization.stage = stage;
      compare(2, expected, offloaded(config, stage == 2 ? 0.5 : 1));
    }
    compare(2, expected, with_parameters(offloaded(config)));
  }
}

TEST_CASE("fp16: steps that are skipped leave the state in host memory alone") {
  for (const int ranks : {1, 2}) {
    const toy::Trace expected = training.on_host(ranks, toy::overflowing_config(1, dims));
    CHECK(std::isinf(expected.norms.front()));
    CHECK(expected.scales.back() != expected.scales.front());
    for (const int stage : {1, 2, 3})
      compare(ranks, expected,
              offloaded(toy::overflowing_config(stage, dims), stage == 1 ? 1 : 0.5));
    compare(ranks, expected, with_parameters(offloaded(toy::overflowing_config(3, dims))));
  }
}

TEST_CASE("the host's part of a step touches none of the device's memory") {
  for (const bool bf16 : {false, true})
    mock::run_ranks(1, mock::Order::random, 3, [&](zero::Runtime& runtime) {
      auto& device = static_cast<mock::Device&>(runtime.core().device());
      device.guard_memory();
      const zero::Config config = offloaded(config_of(3, 1, bf16), bf16 ? 0.8 : 1);
      mock::train(runtime, dims, bf16 ? config : with_parameters(config), steps);
      CHECK(device.scheduler().worked() > 3 * steps);
    });
}

TEST_CASE("with state in host memory the host still waits for decisions of steps before alone") {
  for (const int ranks : {1, 2})
    for (const int stage : {1, 2, 3})
      mock::run_ranks(ranks, mock::Order::compute_first, 1, [&](zero::Runtime& runtime) {
        toy::Activations a = toy::make_activations(dims);  // outlives the queued work
        float loss = 0;
        const mock::Launcher launch(runtime);
        const zero::Config config = offloaded(config_of(stage, 2), stage == 3 ? 1 : 0.8);
        zero::Engine engine(runtime, toy::describe(dims),
                            stage == 3 ? with_parameters(config) : config);
        engine.initialize(toy::fill);
        auto& scheduler = static_cast<mock::Device&>(runtime.core().device()).scheduler();
        std::optional<zero::StepTicket> previous;
        for (int step = 0; step < 5; ++step) {
          const int waits = scheduler.waits();
          for (zero::MicroStep micro : engine.micro_steps()) {
            launch([&a] { toy::load_samples(dims, a, 0); });
            mock::queue_micro_step<zero::bf16>(engine, dims, a, micro, &loss, launch);
          }
          const zero::StepTicket ticket = engine.step();
          if (previous) previous->wait();
          previous = ticket;
          if (step > 1) CHECK(scheduler.waits() - waits <= 1);
        }
      });
}

namespace {

struct Seen {
  std::vector<std::vector<float>> values;
  std::vector<double> losses;
  std::uint64_t digest = 0;
  bool operator==(const Seen&) const = default;
};

// Reads, evaluates and materializes directly after steps that may not have ended.
Seen look(zero::Runtime& runtime, const zero::Config& config) {
  zero::Engine engine(runtime, toy::describe(dims), config);
  engine.initialize(toy::fill);
  toy::Activations a = toy::make_activations(dims);
  Seen seen;
  const auto step = [&](std::optional<double> rate) {
    for (zero::MicroStep micro : engine.micro_steps()) {
      toy::load_samples(dims, a, 10 * engine.step_count() + runtime.rank());
      seen.losses.push_back(toy::mirrored_micro_step<zero::bf16>(runtime, engine, dims, a));
      micro.loss(1);
    }
    engine.step({.learning_rate = rate});
  };
  for (const char* what : {"value", "grad", "master", "exp_avg", "exp_avg_sq"}) {
    step(0.02);
    seen.values.emplace_back(static_cast<std::size_t>(dims.channels * dims.channels));
    engine.read("block.1.weight", what, seen.values.back());
  }
  step({});
  {
    auto evaluation = engine.evaluate();
    if (evaluation.next(true)) {
      auto scope = engine.units().front().forward();
      const auto* wte = scope.value<zero::bf16>("wte");
      std::vector<zero::bf16> table(static_cast<std::size_t>(dims.channels * dims.vocabulary));
      runtime.core().compute().enqueue([&](zero::Stream stream) {
        runtime.core().device().copy(
            table.data(), wte, static_cast<std::int64_t>(table.size() * sizeof table[0]), stream);
      });
      runtime.core().compute().synchronize();
      seen.values.emplace_back(table.size());
      zero::optim::cast(table.data(), zero::DType::bf16, seen.values.back().data(),
                        zero::DType::fp32, std::ssize(table));
    }
  }
  seen.digest = engine.digest();
  return seen;
}

}  // namespace

TEST_CASE("reading and evaluating right after a step see its results") {
  for (const int ranks : {1, 2})
    for (const int stage : {1, 3}) {
      Seen expected, seen;
      zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
        Seen own = look(runtime, config_of(stage));
        if (runtime.is_root()) expected = std::move(own);
      });
      for (const auto order : {mock::Order::compute_first, mock::Order::communication_first}) {
        mock::run_ranks(ranks, order, 5, [&](zero::Runtime& runtime) {
          Seen own = look(runtime, stage == 1 ? offloaded(config_of(stage), 0.8)
                                              : with_parameters(offloaded(config_of(stage)), 2));
          if (runtime.is_root()) seen = std::move(own);
        });
        CHECK(seen == expected);
      }
    }
}

TEST_CASE("checkpoints move freely between host memory, device and CPU") {
  const zero::Config none = toy::overflowing_config(3, dims);
  const zero::Config all = offloaded(toy::overflowing_config(2, dims)),
                     half = offloaded(toy::overflowing_config(3, dims), 0.5);
  const zero::Config parameters = with_parameters(offloaded(none));
  mock::check_moves(dims, none,
                    {{{true, all}, {true, half}},
                     {{true, half}, {true, none}},
                     {{true, none}, {true, all}},
                     {{true, all}, {false, none}},
                     {{false, none}, {true, half}},
                     {{true, parameters}, {true, all}},
                     {{true, half}, {true, parameters}},
                     {{true, parameters}, {false, none}}});
}

TEST_CASE("the plan and the report have the home of every array, to the byte") {
  mock::run_ranks(1, mock::Order::random, 1, [](zero::Runtime& runtime) {
    const auto report_of = [&](const zero::Config& config) {
      zero::Engine engine(runtime, toy::describe(dims), config);
      engine.initialize(toy::fill);
      mock::train_until(runtime, engine, 2, dims);
      const std::string table = engine.memory_table();
      CHECK(table.find("in host memory") != std::string::npos);
      return engine.report().ranks.front();
    };
    const zero::RankReport none = report_of(config_of(1)), all = report_of(offloaded(config_of(1)));
    // On a single rank, chunks are whole segments of multiples of 128 elements.
    const std::int64_t moments = planned(none.memory, "optimizer_state");
    const std::int64_t masters = planned(none.memory, "master_weights");
    CHECK(moments == 2 * masters);
    CHECK(planned(all.memory, "optimizer_state") == 0);
    CHECK(planned(all.memory, "master_weights") == 0);
    CHECK(planned(all.in_host, "optimizer_state") == moments);
    CHECK(planned(all.in_host, "master_weights") == masters);
    CHECK(planned(all.in_host, "gradients") == masters / 2);
    CHECK(planned(all.in_host, "offload_buffers") == 3 * 2048 * 2);
    // Buffers of transfers are page-locked; with pin_memory the rest is too.
    CHECK(total(none.in_pinned) == total(none.in_host));
    CHECK(total(all.in_pinned) == total(all.in_host) - moments - masters);
    zero::Config pins_all = offloaded(config_of(1));
    pins_all.zero_optimization.offload_optimizer.pin_memory = true;
    const zero::RankReport pinned = report_of(pins_all);
    CHECK(total(pinned.in_pinned) == total(all.in_host));
    CHECK(total(pinned.in_host) == total(all.in_host));
    // The device needs fewer lists of elements to update.
    const auto states = [](const zero::RankReport& report) {
      return total(report.memory) - planned(report.memory, "communication") -
             planned(report.memory, "update_staging");
    };
    CHECK(states(none) - states(all) == moments + masters);
    CHECK(planned(all.in_host, "host_pinned") == planned(none.in_host, "host_pinned"));
    CHECK(total(all.in_host) - total(none.in_host) ==
          moments + masters + masters / 2 + 3 * 2048 * 2);
    // Gradients that are sharded and not accumulated have no buffer of their own on the device.
    const zero::RankReport sharded = report_of(offloaded(config_of(2)));
    CHECK(planned(sharded.memory, "gradients") == 0);
    CHECK(planned(sharded.in_host, "gradients") == masters / 2);
    CHECK(planned(report_of(offloaded(config_of(2, 2))).memory, "gradients") >= masters / 2);
    const zero::RankReport crossing = report_of(with_parameters(offloaded(config_of(3)), 2));
    CHECK(planned(crossing.memory, "parameters") == 0);
    CHECK(planned(crossing.in_host, "parameters") == planned(none.memory, "parameters"));
    CHECK(planned(crossing.in_host, "offload_buffers") == 0);
    // Buffers are not allocated if no transfer uses them.
    CHECK(total(report_of(offloaded(config_of(2), 0)).in_host) == total(none.in_host));
  });
}

TEST_CASE("a plan without ranks or device is what a run takes, tier by tier, to the byte") {
  const auto planned_of = [](const std::vector<zero::MemoryUse>& tier) {
    std::vector<std::int64_t> bytes;
    for (const zero::MemoryUse& use : tier) bytes.push_back(use.planned);
    return bytes;
  };
  std::vector<zero::Config> configs{config_of(0), config_of(1, 3, false), config_of(2),
                                    config_of(3, 2)};
  for (const int stage : {1, 2, 3})
    for (const double ratio : {0.3, 1.})
      configs.push_back(offloaded(config_of(stage, stage), ratio));
  configs.push_back(with_parameters(offloaded(config_of(3)), 2));
  configs.push_back(with_parameters(offloaded(config_of(3, 1, false))));
  configs.back().zero_optimization.offload_optimizer.pin_memory = true;
  configs.push_back(config_of(2));
  configs.back().optimizer = zero::optim::default_options("Lamb");
  configs.push_back(config_of(2));
  configs.back().optimizer = zero::optim::default_options("Muon");
  for (const int ranks : {1, 3})
    for (const zero::Config& config : configs)
      for (const bool on_gpu : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(on_gpu);
        CAPTURE(config.zero_optimization.stage);
        const auto compare_with_run = [&](zero::Runtime& runtime) {
          zero::Engine engine(runtime, toy::describe(dims), config);
          const zero::EngineReport report = engine.report();
          const zero::RankReport& own = report.ranks[static_cast<std::size_t>(runtime.rank())];
          const zero::MemoryPlan plan =
              zero::plan_memory(toy::describe(dims), config, ranks, on_gpu, runtime.rank());
          CHECK(planned_of(plan.memory) == planned_of(own.memory));
          CHECK(planned_of(plan.in_host) == planned_of(own.in_host));
          CHECK(planned_of(plan.in_pinned) == planned_of(own.in_pinned));
          total(own.memory), total(own.in_host), total(own.in_pinned);  // everything is allocated
        };
        if (on_gpu)
          mock::run_ranks(ranks, mock::Order::random, 1, compare_with_run);
        else
          zero::testing::run_ranks(ranks, compare_with_run);
      }
  const zero::Config refused = offloaded(config_of(0));
  CHECK_THROWS_AS(zero::plan_memory(toy::describe(dims), refused, 2, true), zero::ConfigError);
  CHECK_NOTHROW(zero::plan_memory(toy::describe(dims), refused, 2, false));
}

TEST_CASE("copies are counted to the byte, and have no time if there is no clock") {
  for (const int ranks : {1, 3})
    mock::run_ranks(ranks, mock::Order::random, 1, [&](zero::Runtime& runtime) {
      const auto report_of = [&](const zero::Config& config) {
        zero::Engine engine(runtime, toy::describe(dims), config);
        engine.initialize(toy::fill);
        mock::train_until(runtime, engine, steps, dims);
        return engine.report().ranks[static_cast<std::size_t>(runtime.rank())];
      };
      CHECK(report_of(config_of(2)).copies.empty());
      for (const int stage : {1, 2, 3})
        for (const double ratio : {0.5, 1.}) {
          const zero::RankReport report = report_of(offloaded(config_of(stage, 2), ratio));
          REQUIRE(report.copies.size() == 2);
          // bf16 gradients are copied out once per step, and parameters of the same number of
          // elements are copied back.
          const std::int64_t gradients = planned(report.in_host, "gradients");
          CHECK(gradients > 0);
          CHECK(report.copies[0].direction == "to_host");
          CHECK(report.copies[0].bytes == steps * gradients);
          CHECK(report.copies[1].direction == "to_device");
          CHECK(report.copies[1].bytes == steps * gradients);
          for (const zero::CopyUse& use : report.copies) CHECK(use.seconds == 0);
        }
      // Parameters in host memory are copied twice per micro step, unless the slots of forward's
      // last unit still hold it for backward.
      const zero::RankReport report = report_of(with_parameters(offloaded(config_of(3)), 2));
      CHECK(report.copies[1].bytes > steps * planned(report.in_host, "parameters"));
      CHECK(report.copies[1].bytes <= 2 * steps * planned(report.in_host, "parameters"));
    });
}

TEST_CASE("unsupported offload settings on GPU ranks are errors that name the key") {
  const auto refuses = [](const zero::Config& config, const char* what) {
    mock::run_ranks(1, mock::Order::random, 1, [&](zero::Runtime& runtime) {
      CHECK_THROWS_WITH_AS(zero::Engine(runtime, toy::describe(dims), config),
                           doctest::Contains(what), zero::ConfigError);
    });
  };
  refuses(with_parameters(config_of(3)), "need offload_optimizer.device cpu or nvme with ratio 1");
  refuses(with_parameters(offloaded(config_of(3), 0.5)), "with ratio 1 on GPU ranks");
  refuses(offloaded(config_of(0)), "need stage 1, 2 or 3 on GPU ranks");
  for (const char* type : {"Lamb", "Muon", "Adafactor"}) {
    zero::Config config = config_of(2);
    config.optimizer = zero::optim::default_options(type);
    refuses(offloaded(config), "cannot have its state in the host memory of a GPU rank");
  }
}
