// Units whose parameters have no elements: models train at every stage as if these units did not
// exist.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "zero/testing.h"

namespace {

struct Declared {
  const char* name;
  bool empty = false, frozen = false, buffer = false, weight = false;
};

void declare(zero::ModelSpec& model, const Declared& unit) {
  zero::UnitSpec& spec = model.unit(unit.name);
  if (unit.empty) spec.param("empty", {0, 3}).param("none", {5, 0}, {.decay = false});
  if (unit.frozen) spec.param("frozen", {40}, {.trainable = false});
  if (unit.buffer) spec.buffer("seen", {3}).buffer("nothing", {0});
  if (unit.weight) spec.param("weight", {300});
}

zero::Config config_of(int stage, int accumulation) {
  zero::Config config;
  config.batch.train_micro_batch_size_per_gpu = 1;
  config.batch.gradient_accumulation_steps = accumulation;
  config.zero_optimization.stage = stage;
  config.optimizer = zero::optim::default_options("AdamW");
  return config;
}

void train_step(zero::Engine& engine, const std::vector<Declared>& units) {
  for (zero::MicroStep micro : engine.micro_steps()) {
    for (zero::Unit& unit : engine.units()) {
      auto scope = unit.forward();
      if (units[static_cast<std::size_t>(unit.index())].empty)
        CHECK_NOTHROW(scope.value<float>("empty"));
    }
    micro.loss(0.5);
    for (zero::Unit* unit : engine.backward_units()) {
      auto scope = unit->backward();
      const Declared& declared = units[static_cast<std::size_t>(unit->index())];
      if (declared.empty) CHECK_NOTHROW(scope.grad<float>("empty"));
      if (!declared.weight) continue;
      float* gradient = scope.grad<float>("weight");
      for (int i = 0; i < 300; ++i) gradient[i] += 0.01f * static_cast<float>(i);
    }
  }
  engine.step();
}

// Returns the final weight of unit "w"; nothing if it does not exist.
std::vector<float> train(int ranks, int stage, int accumulation,
                         const std::vector<Declared>& units) {
  std::vector<float> weight;
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    zero::ModelSpec model;
    for (const Declared& unit : units) declare(model, unit);
    zero::Engine engine(runtime, model, config_of(stage, accumulation));
    engine.initialize([](zero::ParamShard shard) {
      for (float& value : shard.values) value = 1;
    });
    for (int step = 0; step < 3; ++step) train_step(engine, units);
    for (auto evaluation = engine.evaluate(); evaluation.next(engine.step_count() == 0);) {
    }
    CHECK(engine.step_count() == 3);
    engine.digest();
    if (!units.back().weight) return;
    std::vector<float> own(300);
    engine.read("w.weight", "value", own);
    if (runtime.is_root()) weight = own;
  });
  return weight;
}

}  // namespace

TEST_CASE("a model of empty parameters alone trains at every stage") {
  for (const int ranks : {1, 2, 3})
    for (const int stage : {0, 1, 2, 3})
      for (const bool beside : {false, true}) {
        CAPTURE(ranks);
        CAPTURE(stage);
        CAPTURE(beside);
        CHECK_NOTHROW(train(ranks, stage, 1, {{"e", true, beside, beside}}));
      }
}

TEST_CASE("units of empty parameters leave the others as they are") {
  const std::vector<Declared> alone = {{.name = "w", .weight = true}};
  const std::vector<Declared> among = {{.name = "only_empty", .empty = true},
                                       {.name = "frozen", .empty = true, .frozen = true},
                                       {.name = "buffers", .empty = true, .buffer = true},
                                       {.name = "nothing", .buffer = true},
                                       {.name = "w", .weight = true}};
  for (const int ranks : {1, 2, 3})
    for (const int stage : {0, 1, 2, 3})
      for (const int accumulation : {1, 2}) {
        CAPTURE(ranks);
        CAPTURE(stage);
        CAPTURE(accumulation);
        const std::vector<float> expected = train(ranks, stage, accumulation, alone);
        CHECK(expected.front() != expected.back());
        CHECK(train(ranks, stage, accumulation, among) == expected);
      }
}
