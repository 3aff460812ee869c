// Handles of an engine that are moved, kept, and outlive it.
#include <doctest/doctest.h>

#include <optional>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "tests/support/refusal.h"
#include "tests/support/toy_model.h"
#include "zero/testing.h"

namespace {

using zero::tests::contains;
using zero::tests::refusal;

zero::ModelSpec three_units() {
  zero::ModelSpec model;
  for (const char* name : {"a", "b", "c"}) model.unit(name).param("w", {300});
  return model;
}

void fill(zero::ParamShard shard) {
  for (float& value : shard.values) value = 1;
}

zero::Config config_of(int stage) {
  zero::Config config = toy::config(stage, {});
  config.zero_optimization.prefetch_bucket_size = 4000;  // slots for three open scopes
  return config;
}

template <class Body>
void on_ranks(const Body& body) {
  for (const int ranks : {1, 2})
    for (const int stage : {0, 3}) {
      CAPTURE(ranks);
      CAPTURE(stage);
      zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) { body(runtime, stage); });
    }
}

template <class Handle>
constexpr bool moves_only =
    std::is_nothrow_move_constructible_v<Handle>&& std::is_nothrow_move_assignable_v<Handle> &&
    !std::is_copy_constructible_v<Handle>;
static_assert(moves_only<zero::ForwardScope> && moves_only<zero::BackwardScope> &&
              moves_only<zero::Evaluation> && moves_only<zero::FullModel>);

}  // namespace

TEST_CASE("scopes can be kept in containers, which end them") {
  on_ranks([](zero::Runtime& runtime, int stage) {
    zero::Engine engine(runtime, three_units(), config_of(stage));
    engine.initialize(fill);
    std::vector<zero::ForwardScope> forward;
    std::optional<zero::BackwardScope> backward;
    for (int step = 0; step < 3; ++step) {
      for (zero::MicroStep micro : engine.micro_steps()) {
        for (zero::Unit& unit : engine.units()) forward.push_back(unit.forward());
        for (const zero::ForwardScope& scope : forward) CHECK(*scope.value<float>("w") != 0);
        forward.erase(forward.begin());
        forward.clear();
        micro.loss(0.5);
        for (zero::Unit* unit : engine.backward_units()) {
          if (backward) backward.reset();
          backward = unit->backward();
          zero::BackwardScope moved = std::move(*backward);
          CHECK(contains(refusal<zero::UsageError>([&] { backward->grad<float>("w"); }),
                         "this scope has been moved from"));
          *backward = std::move(moved);
          backward->grad<float>("w")[0] += 1;
        }
        backward.reset();
      }
      CHECK(engine.step().wait().step == step + 1);
    }
  });
}

TEST_CASE("a scope that outlives its evaluation does not end another one of its unit") {
  on_ranks([](zero::Runtime& runtime, int stage) {
    zero::Engine engine(runtime, three_units(), config_of(stage));
    engine.initialize(fill);
    std::optional<zero::ForwardScope> kept;
    {
      zero::Evaluation evaluation = engine.evaluate();
      CHECK(evaluation.next(true));
      kept.emplace(engine.unit("a").forward());
    }
    zero::MicroStep micro = engine.begin_micro_step(true);
    const zero::ForwardScope own = engine.unit("a").forward();
    kept.reset();
    for (const char* name : {"b", "c"}) static_cast<void>(engine.unit(name).forward());
    micro.loss(0.5);
    for (zero::Unit* unit : engine.backward_units()) unit->backward().grad<float>("w")[0] += 1;
    CHECK(contains(refusal<zero::UsageError>([&] { engine.step(); }),
                   "forward of unit a is still open at the end of the micro step"));
  });
}

TEST_CASE("handles that outlive their engine do nothing, and their calls report it") {
  on_ranks([](zero::Runtime& runtime, int stage) {
    std::optional<zero::BackwardScope> backward;
    std::vector<zero::ForwardScope> forward;
    std::optional<zero::MicroStep> micro_step;
    std::optional<zero::Unit> unit;
    {
      zero::Engine engine(runtime, three_units(), config_of(stage));
      engine.initialize(fill);
      unit = engine.unit("b");
      try {
        for (zero::MicroStep micro : engine.micro_steps()) {
          micro_step = micro;
          for (zero::Unit& each : engine.units()) forward.push_back(each.forward());
          forward.pop_back();
          micro.loss(0.5);
          backward = engine.unit("c").backward();
          throw std::runtime_error("autograd threw");
        }
      } catch (const std::runtime_error&) {
      }
    }
    constexpr const char* text = "the engine of this scope has been destroyed";
    CHECK(contains(refusal<zero::UsageError>([&] { backward->value<float>("w"); }), text));
    CHECK(contains(refusal<zero::UsageError>([&] { backward->grad<float>("w"); }), text));
    CHECK(contains(refusal<zero::UsageError>([&] { backward->grad_target<float>("w"); }), text));
    CHECK(contains(refusal<zero::UsageError>([&] { forward[0].value<float>("w"); }), text));
    CHECK(contains(refusal<zero::UsageError>([&] { static_cast<void>(unit->forward()); }),
                   "the engine of this unit has been destroyed"));
    CHECK(contains(refusal<zero::UsageError>([&] { micro_step->loss(1.); }),
                   "the engine of this micro step has been destroyed"));
  });
}

TEST_CASE("evaluations, full models and saves that outlive their engine do nothing") {
  on_ranks([](zero::Runtime& runtime, int stage) {
    std::optional<zero::Evaluation> evaluation;
    std::optional<zero::FullModel> full_model;
    for (const bool evaluates : {true, false}) {
      zero::Engine engine(runtime, three_units(), config_of(stage));
      engine.initialize(fill);
      if (!evaluates) {
        full_model = engine.materialize();
        continue;
      }
      zero::Evaluation first = engine.evaluate();
      evaluation = std::move(first);
      CHECK(evaluation->next(true));
    }
    CHECK(contains(refusal<zero::UsageError>([&] { evaluation->next(true); }),
                   "the engine of this evaluation has been destroyed"));
    evaluation.reset();
    full_model.reset();
    zero::Engine engine(runtime, three_units(), config_of(stage));
    engine.initialize(fill);
    CHECK(engine.digest() != 0);
  });
}
