// States that a program declares and visits: averages of weights, and update rules of its own, have
// the same bits at every stage and number of ranks, in every home, and go on from checkpoints.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/hybrid_rows.h"
#include "tests/support/mock_ranks.h"
#include "tests/support/refusal.h"
#include "tests/support/stage_rows.h"
#include "tests/support/sweep.h"
#include "tests/support/temporary_directory.h"

namespace {

using zero::ParamElements;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

constexpr toy::Dims dims;
constexpr float decay = 0.9f, rate = 0.03f, momentum = 0.8f;
constexpr int steps = 4;

zero::ModelSpec describe() {
  zero::ModelSpec model = toy::describe(dims);
  model.state("ema", zero::StateStart::value).state("velocity");
  return model;
}

// SGD with a rate of 0: the program's rule alone changes the weights.
zero::Config config_of(const zero::tests::ConfigRow& row) {
  zero::Config config = toy::config(0, dims);
  row.change(config);
  config.optimizer = zero::optim::default_options("SGD");
  config.optimizer.learning_rate = 0;
  config.gradient_clipping = 0;
  return config;
}

void average(ParamElements& elements) {
  const std::span<float> ema = elements.state("ema");
  for (std::size_t i = 0; i < ema.size(); ++i)
    ema[i] = std::fma(decay, ema[i], (1 - decay) * elements.value[i]);
}

// SGD with momentum as the engine's own rule computes it, see optim/update_rules.h.
void update(ParamElements& elements, bool first) {
  const std::span<float> velocity = elements.state("velocity");
  for (std::size_t i = 0; i < velocity.size(); ++i) {
    const float keep = first ? 0 : momentum;
    velocity[i] = std::fma(keep, velocity[i], elements.gradient[i]);
    elements.value[i] = std::fma(-rate, velocity[i], elements.value[i]);
  }
}

toy::Trace trained(zero::Runtime& runtime, zero::Engine& engine, std::int64_t until) {
  toy::Trace trace;
  while (engine.step_count() < until) {
    trace = mock::train_until(runtime, engine, engine.step_count() + 1, dims);
    engine.visit(
        [&](ParamElements& elements) {
          update(elements, engine.step_count() == 1);
          average(elements);
        },
        zero::Visit::with_gradients);
  }
  trace.digest = engine.digest();
  return trace;
}

toy::Trace run(int ranks, const zero::Config& config) {
  toy::Trace trace;
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, describe(), config);
    engine.initialize(toy::fill);
    const toy::Trace own = trained(runtime, engine, steps);
    if (runtime.is_root()) trace = own;
  });
  return trace;
}

std::map<std::string, std::vector<float>> whole_values(zero::Engine& engine, const char* what) {
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, elements] :
       {std::pair("embed.wte", 29 * 18), std::pair("block.1.weight", 18 * 18),
        std::pair("block.4.bias", 18), std::pair("embed.unused", 7)}) {
    values[name].resize(static_cast<std::size_t>(elements));
    engine.read(name, what, values[name]);
  }
  return values;
}

}  // namespace

TEST_CASE("a rule of the program's own has the bits of the engine's, at all stages") {
  sweep::Part part(1, 7);
  for (const int ranks : {1, 2, 3, 4})
    for (const bool bf16 : {false, true}) {
      std::optional<toy::Trace> expected;
      for (const zero::tests::ConfigRow& row : zero::tests::stage_rows()) {
        if (!part.next_is_due()) continue;
        CAPTURE(ranks);
        CAPTURE(bf16);
        CAPTURE(std::string(row.name));
        zero::Config config = config_of(row);
        config.bf16_enabled = bf16;
        config.zero_core.gradient_sync = zero::GradientSync::each;
        const toy::Trace trace = run(ranks, config);
        if (!expected) expected = trace;
        CHECK(trace == *expected);
        // The engine's own rule reaches the same weights.
        config.optimizer.learning_rate = static_cast<double>(rate);
        config.optimizer.momentum = static_cast<double>(momentum);
        config.optimizer.weight_decay = 0;
        zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
          zero::Engine own(runtime, toy::describe(dims), config);
          own.initialize(toy::fill);
          mock::train_until(runtime, own, steps, dims);
          zero::Config none = config_of(row);
          none.bf16_enabled = bf16;
          none.zero_core.gradient_sync = zero::GradientSync::each;
          zero::Engine visited(runtime, describe(), none);
          visited.initialize(toy::fill);
          trained(runtime, visited, steps);
          CHECK(whole_values(own, "master") == whole_values(visited, "master"));
          CHECK(whole_values(own, "momentum_buffer") == whole_values(visited, "velocity"));
        });
      }
    }
}

TEST_CASE("hybrid strategies have the bits of a stage, in states of the program too") {
  const zero::tests::ConfigRow stage{"stage 2", [](zero::Config& c) {
                                       c.zero_optimization.stage = 2;
                                       c.zero_core.reduce_group_size = 2;
                                     }};
  const toy::Trace expected = run(4, config_of(stage));
  for (const hybrid::Row& row : hybrid::rows) {
    CAPTURE(std::string(row.name));
    CHECK(run(4, hybrid::in_groups(config_of(stage), row, 2)) == expected);
  }
}

TEST_CASE("an average begins at the weights, and follows them") {
  zero::testing::run_ranks(3, [](zero::Runtime& runtime) {
    zero::Config config = toy::config(3, dims);
    zero::Engine engine(runtime, describe(), config);
    engine.initialize(toy::fill);
    auto expected = whole_values(engine, "master");
    CHECK(whole_values(engine, "ema") == expected);
    for (int step = 1; step <= steps; ++step) {
      mock::train_until(runtime, engine, step, dims);
      engine.visit(average);
      for (const auto& [name, values] : whole_values(engine, "master"))
        for (std::size_t i = 0; i < values.size(); ++i)
          expected[name][i] = std::fma(decay, expected[name][i], (1 - decay) * values[i]);
    }
    CHECK(whole_values(engine, "ema") == expected);
    // Evaluated with the averages, then trained on.
    const std::uint64_t before = engine.digest();
    const auto swap = [](ParamElements& elements) {
      std::ranges::swap_ranges(elements.value, elements.state("ema"));
    };
    engine.visit(swap);
    CHECK(whole_values(engine, "value") == expected);
    CHECK(engine.digest() != before);
    engine.visit(swap);
    CHECK(engine.digest() == before);
  });
}

TEST_CASE("states of the program go on from a checkpoint, on other ranks and at other stages") {
  const std::vector<zero::tests::ConfigRow> rows = zero::tests::stage_rows();
  const TemporaryDirectory directory;
  const zero::Config config = config_of(rows[2]);
  std::uint64_t saved = 0;
  toy::Trace rest;
  zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, describe(), config);
    engine.initialize(toy::fill);
    trained(runtime, engine, 2);
    engine.save_checkpoint(directory / "saved").wait();
    const std::uint64_t digest = engine.digest();
    const toy::Trace own = trained(runtime, engine, steps);
    if (runtime.is_root()) saved = digest, rest = own;
  });
  for (const zero::tests::ConfigRow& row : rows)
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(std::string(row.name));
      CAPTURE(ranks);
      zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, describe(), config_of(row));
        REQUIRE(engine.resume(directory / "saved"));
        CHECK(engine.digest() == saved);
        if (ranks != 2) return;
        const toy::Trace own = trained(runtime, engine, steps);
        if (runtime.is_root()) CHECK(own == rest);
      });
    }
  zero::testing::run_ranks(1, [&](zero::Runtime& runtime) {
    zero::Engine other(runtime, toy::describe(dims), config);
    CHECK(contains(refusal<zero::LoadError>([&] { other.resume(directory / "saved"); }),
                   "ema of SGD is not one"));
  });
}

TEST_CASE("states of the program in a file, and on devices in any order") {
  const zero::tests::ConfigRow stage{"stage 3", [](zero::Config& c) {
                                       c.zero_optimization.stage = 3;
                                       c.bf16_enabled = true;
                                       c.zero_core.gradient_sync = zero::GradientSync::each;
                                     }};
  const zero::Config config = config_of(stage);
  for (const int ranks : {1, 3}) {
    CAPTURE(ranks);
    const toy::Trace expected = run(ranks, config);
    const TemporaryDirectory directory;
    zero::Config in_file = config;
    in_file.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
    in_file.zero_optimization.offload_optimizer.nvme_path = directory.path();
    CHECK(run(ranks, in_file) == expected);
    zero::Config in_host = config;
    in_host.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
    for (const zero::Config& one : {config, in_host})
      for (const mock::Order order : {mock::Order::random, mock::Order::one_last}) {
        toy::Trace trace;
        mock::run_ranks(ranks, order, 5, [&](zero::Runtime& runtime) {
          zero::Engine engine(runtime, describe(), one);
          engine.initialize(toy::fill);
          const toy::Trace own = trained(runtime, engine, steps);
          if (runtime.is_root()) trace = own;
        });
        CHECK(trace == expected);
      }
  }
}

// A visit between the ranks' agreement and the update; the update of the third step is skipped.
zero::StepOptions visits(std::int64_t before) {
  zero::StepOptions options;
  options.inspect = [before](zero::Gradients& gradients) {
    gradients.visit([&](ParamElements& elements) {
      update(elements, before == 0);
      average(elements);
      for (float& moment : elements.state("exp_avg")) moment *= 0.5f;
    });
    return before == 2 ? zero::Decision::skip : zero::Decision::apply;
  };
  return options;
}

TEST_CASE("a visit before the update reaches state that is in slots already") {
  toy::Dims visited = dims;
  visited.options_of = visits;
  toy::Trace trace;
  const zero::Config* config = nullptr;
  const auto train = [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, describe(), *config);
    engine.initialize(toy::fill);
    toy::Trace own = mock::train_until(runtime, engine, steps, visited);
    own.digest = engine.digest();
    if (runtime.is_root()) trace = own;
  };
  for (const int ranks : {1, 3})
    for (const bool bf16 : {false, true}) {
      CAPTURE(ranks);
      CAPTURE(bf16);
      zero::Config in_memory = toy::config(2, dims);
      in_memory.bf16_enabled = bf16;
      in_memory.zero_core.offload_chunk_bytes = 1000;
      config = &in_memory;
      zero::testing::run_ranks(ranks, train);
      const toy::Trace expected = trace;
      const TemporaryDirectory directory;
      zero::Config outside = in_memory;
      config = &outside;
      auto& home = outside.zero_optimization.offload_optimizer;
      home.nvme_path = directory.path();
      for (const int stage : {1, 2, 3})
        for (const bool reads_ahead : {true, false}) {
          CAPTURE(stage);
          CAPTURE(reads_ahead);
          outside.zero_optimization.stage = stage;
          home.pipeline_read = reads_ahead;
          home.device = zero::OffloadDevice::nvme;
          outside.zero_core.offload_step = "host";
          zero::testing::run_ranks(ranks, train);
          CHECK(trace == expected);
          home.device = zero::OffloadDevice::cpu;
          for (const char* step : {"host", "device"}) {
            CAPTURE(std::string(step));
            outside.zero_core.offload_step = step;
            mock::run_ranks(ranks, mock::Order::random, 5, train);
            CHECK(trace == expected);
          }
        }
    }
}

TEST_CASE("the plan counts states of the program") {
  const zero::Config config = config_of(zero::tests::stage_rows()[3]);
  const auto bytes = [&](const zero::ModelSpec& model) {
    std::int64_t sum = 0;
    for (const zero::MemoryUse& use : zero::plan_memory(model, config, 2, false).memory)
      if (use.category == zero::name_of(zero::MemoryCategory::optimizer_state)) sum += use.planned;
    return sum;
  };
  zero::ModelSpec one = toy::describe(dims);
  one.state("ema");
  CHECK(bytes(describe()) - bytes(one) == bytes(one) - bytes(toy::describe(dims)));
  CHECK(bytes(one) > bytes(toy::describe(dims)));
}

TEST_CASE("states of the program are refused by name") {
  zero::ModelSpec model = toy::describe(dims);
  CHECK(contains(refusal<zero::UsageError>([&] { model.state("exp avg"); }),
                 "expected letters, digits"));
  CHECK(contains(refusal<zero::UsageError>([&] { model.state("grad"); }), "names an array"));
  model.state("exp_avg");
  CHECK(contains(refusal<zero::UsageError>([&] { model.state("exp_avg"); }), "declared twice"));
  zero::testing::run_ranks(1, [&](zero::Runtime& runtime) {
    const zero::Config config = toy::config(1, dims);
    CHECK(contains(refusal<zero::UsageError>([&] { zero::Engine(runtime, model, config); }),
                   "choose another name"));
    zero::Engine engine(runtime, describe(), config);
    CHECK(contains(refusal<zero::UsageError>([&] { engine.visit([](ParamElements&) {}); }),
                   "have no values to visit"));
  });
  zero::testing::run_ranks(1, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, describe(), toy::config(1, dims));
    engine.initialize(toy::fill);
    const auto unknown = [](ParamElements& elements) { (void)elements.state("avg"); };
    CHECK(contains(refusal<zero::UsageError>([&] { engine.visit(unknown); }),
                   "expected one of exp_avg, exp_avg_sq, ema, velocity"));
  });
}
