// Engines that do not train: all parameters are frozen, so there are no gradients, masters or
// states; several of them on the same ranks, next to an engine that trains.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/planned_bytes.h"
#include "tests/support/stage_rows.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"
#include "zero/testing.h"

namespace {

constexpr int units = 4, width = 3000;

zero::ModelSpec describe(bool trains) {
  zero::ModelSpec model;
  for (int u = 0; u < units; ++u)
    model.unit("u" + std::to_string(u)).param("weight", {width}, {.trainable = trains});
  return model;
}

zero::Config config_of(const zero::tests::ConfigRow& row) {
  zero::Config config;
  row.change(config);
  config.batch.train_micro_batch_size_per_gpu = 1;
  config.optimizer.learning_rate = 0.25;
  return config;
}

void initialize(zero::Engine& engine, float value) {
  engine.initialize([&](zero::ParamShard shard) { std::ranges::fill(shard.values, value); });
}

// The sum of one element of each unit, in an evaluation.
float evaluated(zero::Engine& engine) {
  float sum = 0;
  zero::Evaluation evaluation = engine.evaluate();
  for (bool more = true; evaluation.next(more); more = false)
    for (zero::Unit& unit : engine.units()) {
      auto scope = unit.forward();
      sum += scope.value<float>("weight")[width - 1];
    }
  return sum;
}

void train(zero::Engine& engine, float gradient) {
  for (zero::MicroStep micro : engine.micro_steps()) {
    for (zero::Unit& unit : engine.units()) (void)unit.forward();
    micro.loss(gradient);
    for (int u = units; u-- > 0;) {
      auto scope = engine.units()[static_cast<std::size_t>(u)].backward();
      float* grad = scope.grad<float>("weight");
      for (int i = 0; i < width; ++i) grad[i] += gradient;
    }
  }
  engine.step().wait();
}

}  // namespace

TEST_CASE("an engine that does not train has its shards and slots alone") {
  const auto rounded = [](std::int64_t count, std::int64_t to) {
    return (count + to - 1) / to * to;
  };
  for (const int ranks : {1, 2, 3, 4})
    for (const zero::tests::ConfigRow& row : zero::tests::stage_rows()) {
      CAPTURE(ranks);
      CAPTURE(std::string(row.name));
      const zero::MemoryPlan plan =
          zero::plan_memory(describe(false), config_of(row), ranks, false);
      const bool shards = ranks > 1 && config_of(row).zero_optimization.stage == 3;
      const std::int64_t slice = rounded((width + ranks - 1) / ranks, 128) * 4;
      const std::int64_t slots = std::string(row.name) == "SHARD_GRAD_OP" ? units : 2;
      CHECK(zero::tests::planned(plan.memory, "parameters") ==
            units * (shards ? slice : slice * ranks));
      CHECK(zero::tests::planned(plan.memory, "parameter_slots") ==
            (shards ? slots * slice * ranks : 0));
      for (const char* none : {"gradients", "gradient_slots", "master_weights", "optimizer_state"})
        CHECK(zero::tests::planned(plan.memory, none) == 0);
    }
}

TEST_CASE("engines that do not train run next to one that does, in any order") {
  const zero::tests::TemporaryDirectory directory;
  for (const int ranks : {1, 2, 3})
    for (const zero::tests::ConfigRow& row : zero::tests::stage_rows())
      for (const bool in_file : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(std::string(row.name));
        zero::Config frozen = config_of(row);
        if (in_file) {
          if (frozen.zero_optimization.stage != 3) continue;
          frozen.zero_optimization.offload_param.device = zero::OffloadDevice::nvme;
          frozen.zero_optimization.offload_param.nvme_path = directory.path();
          frozen.zero_optimization.offload_param.max_in_cpu = 0;
        }
        zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
          zero::Engine policy(runtime, describe(true), config_of(row));
          auto reference = std::make_unique<zero::Engine>(runtime, describe(false), frozen);
          zero::Engine reward(runtime, describe(false), config_of(row));
          initialize(policy, 1);
          initialize(*reference, 1);
          initialize(reward, 5);
          for (int step = 0; step < 3; ++step) {
            CHECK(evaluated(*reference) == units);
            train(policy, evaluated(reward));
            CHECK(evaluated(reward) == 5 * units);
            CHECK(evaluated(policy) < units);
          }
          reference.reset();
          train(policy, 1);
          CHECK(evaluated(reward) == 5 * units);
        });
      }
}

TEST_CASE(
    "backward ends at the same unit at every stage, also if small parameters are persistent") {
  zero::ModelSpec model;
  model.unit("base").param("scale", {7}, {.trainable = false});
  model.unit("middle").param("weight", {301}, {.trainable = false});
  model.unit("adapter").param("bias", {3});
  model.unit("tied").uses("adapter.bias").param("offset", {5}, {.trainable = false});
  zero::Config config;
  config.batch.train_micro_batch_size_per_gpu = 1;
  std::uint64_t expected = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const int persistent : {0, 10, 1000}) {
      CAPTURE(stage);
      CAPTURE(persistent);
      config.zero_optimization.stage = stage;
      config.zero_optimization.param_persistence_threshold = persistent;
      zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, model, config);
        initialize(engine, 0.5f);
        CHECK(engine.backward_units().size() == 2);
        for (zero::MicroStep micro : engine.micro_steps()) {
          for (zero::Unit& unit : engine.units()) (void)unit.forward();
          micro.loss(1);
          for (const char* name : {"tied", "adapter"}) {
            auto scope = engine.unit(name).backward();
            scope.grad<float>(engine.unit(name).index() == 3 ? "adapter.bias" : "bias")[1] += 2;
          }
        }
        engine.step().wait();
        const std::uint64_t digest = engine.digest();
        if (runtime.is_root()) CHECK(digest == (expected == 0 ? expected = digest : expected));
      });
    }
}
