// If a copy of replicated parameters drifts, the run ends with unit and rank, before it is saved.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"
#include "zero/testing.h"

namespace {

using zero::tests::contains;
using zero::tests::refusal;

const toy::Dims dims;

zero::Config config_of(int stage, std::int64_t verify_every) {
  zero::Config config = toy::config(stage, dims);
  config.zero_core.verify_every = verify_every;
  return config;
}

void run_step(zero::Runtime& runtime, zero::Engine& engine, const zero::StepOptions& options = {}) {
  toy::Activations a = toy::make_activations(dims);
  for (zero::MicroStep micro : engine.micro_steps()) {
    toy::load_samples(dims, a, (engine.step_count() * 8 + runtime.rank()) * dims.batch);
    micro.loss(toy::micro_step<float>(engine, dims, a, micro.loss_scale()));
  }
  engine.step(options);
}

// Writes through a pointer that scopes return for reading. On this rank alone, since an evaluation
// sends nothing if parameters are not sharded.
void spoil(zero::Engine& engine, const char* unit, const char* name) {
  int left = 1;
  for (zero::Evaluation eval = engine.evaluate(); eval.next(left > 0); --left)
    for (zero::Unit& each : engine.units()) {
      auto scope = each.forward();
      if (each.name() != unit) continue;
      float* values = const_cast<float*>(scope.value<float>(name));
      for (int i = 3; i < 8; ++i) values[i] *= 64;
    }
}

// Returns the error if rank `culprit` has other values in `name` of `unit` from the second step on.
std::string error_of(int ranks, int culprit, const zero::Config& config,
                     const std::function<void(zero::Runtime&, zero::Engine&)>& rest,
                     const char* unit = "block.2", const char* name = "weight") {
  return refusal<zero::NumericError>([&] {
    zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), config);
      engine.initialize(toy::fill);
      run_step(runtime, engine);
      if (runtime.rank() == culprit) spoil(engine, unit, name);
      rest(runtime, engine);
    });
  });
}

void three_steps(zero::Runtime& runtime, zero::Engine& engine) {
  for (int step = 0; step < 3; ++step) run_step(runtime, engine);
}

}  // namespace

TEST_CASE("a replica that drifts ends the run with its unit and rank") {
  for (const int stage : {0, 1, 2}) {
    CAPTURE(stage);
    for (const int culprit : {0, 2}) {
      const std::string message = error_of(3, culprit, config_of(stage, 1), three_steps);
      CHECK(
          contains(message, "before the update of step 2 the parameters of unit block.2 are not"));
      CHECK(contains(message, "rank " + std::to_string(culprit) + " differs from the other 2;"));
    }
    const std::string of_two = error_of(2, 1, config_of(stage, 1), three_steps);
    CHECK(contains(of_two, "rank 0 has "));
    CHECK(contains(of_two, ", rank 1 has "));
    CHECK(contains(of_two, "no value is that of most ranks"));
  }
}

TEST_CASE("among units of several blocks the one that drifts is named") {
  zero::ModelSpec model;
  model.unit("large").param("w", {80'000});
  model.unit("small").param("w", {1000});
  const zero::tests::TemporaryDirectory directory;
  for (const int stage : {0, 1, 2}) {
    const std::string message = refusal<zero::NumericError>([&] {
      zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, model, config_of(stage, 1));
        engine.initialize([](zero::ParamShard shard) { std::ranges::fill(shard.values, 1.f); });
        if (runtime.rank() == 1) spoil(engine, "small", "w");
        engine.export_model(directory / "model");
      });
    });
    CHECK(contains(message, "the parameters of unit small are not"));
  }
}

TEST_CASE("frozen and shared parameters are compared too") {
  for (const int stage : {0, 2}) {
    const zero::Config config = config_of(stage, 1);
    CHECK(contains(error_of(3, 1, config, three_steps, "block.4", "frozen"), "unit block.4 are"));
    CHECK(contains(error_of(3, 1, config, three_steps, "embed", "wte"), "unit embed.wte are"));
  }
}

TEST_CASE("replicas are compared every N steps, if a step requests it, or never") {
  // If every rank updates all parameters, the difference stays until it is found.
  CHECK(contains(error_of(3, 1, config_of(0, 3), three_steps), "before the update of step 3 "));
  CHECK(error_of(3, 1, config_of(0, 100), three_steps).empty());
  CHECK(error_of(3, 1, config_of(0, 0), three_steps).empty());
  const auto asking = [](zero::Runtime& runtime, zero::Engine& engine) {
    run_step(runtime, engine, {.verify_replicas = true});
  };
  for (const int stage : {0, 1, 2})
    CHECK(contains(error_of(3, 1, config_of(stage, 100), asking), "of step 2 "));
  CHECK(error_of(3, 1, config_of(0, 0), asking).empty());
  for (const int stage : {0, 1, 2, 3})
    zero::testing::run_ranks(4, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), config_of(stage, 1));
      engine.initialize(toy::fill);
      three_steps(runtime, engine);
    });
}

TEST_CASE("drifted replicas are not saved") {
  const zero::tests::TemporaryDirectory directory;
  const std::string checkpoints = directory / "checkpoints", model = directory / "model";
  for (const char* name : {"weight", "frozen"}) {
    const std::string saving = error_of(
        3, 1, config_of(0, 100),
        [&](zero::Runtime&, zero::Engine& engine) { engine.save_checkpoint(checkpoints).wait(); },
        "block.2", name);
    CHECK(contains(saving, "before a save after step 1 the parameters of unit block.2 are not"));
    const std::string exporting = error_of(
        3, 1, config_of(0, 100),
        [&](zero::Runtime&, zero::Engine& engine) { engine.export_model(model); }, "block.2", name);
    CHECK(contains(exporting, "before a save after step 1 "));
  }
  CHECK(!std::filesystem::exists(checkpoints));
  CHECK(!std::filesystem::exists(model));
}
