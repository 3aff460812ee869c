// Units inside others, units that are repeated or left out, and a learned order.
#include <doctest/doctest.h>

#include <map>
#include <mutex>

#include "tests/support/hybrid_rows.h"
#include "tests/support/layer_chain.h"
#include "tests/support/refusal.h"
#include "tests/support/stderr_of.h"
#include "tests/support/toy_model.h"
#include "zero/plan/engine_plan.h"
#include "zero/runtime/strict_mode.h"
#include "zero/testing.h"

namespace {

using chain::Declaration;
using zero::tests::contains;
using zero::tests::refusal;
using Calls = std::vector<std::string>;

zero::Config config_of(int stage, int accumulation = 1) {
  zero::Config config = toy::config(stage, {}, accumulation);
  config.zero_core.gradient_sync = zero::GradientSync::each;
  return config;
}

struct Setup {
  Declaration declared;
  bool whole_gradients = false;
  int accumulation = 1;
  // Returns the calls of a rank in a micro step.
  std::function<Calls(int rank, int step, int micro)> calls = [](int, int, int) {
    return Calls{"a", "b", "c", "d"};
  };
};

void at_once(std::function<void()> kernel) {
  kernel();
}

// Losses and the digest after three steps.
struct Outcome {
  std::vector<double> losses;
  std::uint64_t digest = 0;
  bool operator==(const Outcome&) const = default;
};

Outcome train(zero::Runtime& runtime, const Setup& setup, int stage) {
  zero::Engine engine(runtime, chain::describe(setup.declared),
                      config_of(stage, setup.accumulation));
  engine.initialize(chain::fill);
  Outcome outcome;
  for (int step = 0; step < 3; ++step) {
    for (zero::MicroStep micro : engine.micro_steps()) {
      chain::Pass pass(engine, at_once, setup.whole_gradients);
      micro.loss(*pass.forward(setup.calls(runtime.rank(), step, micro.index()),
                               0.1f * static_cast<float>(1 + runtime.rank() + step)));
      pass.backward();
    }
    outcome.losses.push_back(engine.step().wait().loss);
  }
  outcome.digest = engine.digest();
  return outcome;
}

Outcome train_on(int ranks, const Setup& setup, int stage) {
  Outcome outcome;
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    Outcome own = train(runtime, setup, stage);
    if (runtime.is_root()) outcome = std::move(own);
  });
  return outcome;
}

// All setups that describe the same program must be equal, at all stages.
void check_equal(const std::vector<Setup>& setups) {
  for (const int ranks : {1, 2, 3}) {
    const Outcome first = train_on(ranks, setups.front(), 0);
    CHECK(first.losses.front() != first.losses.back());
    for (std::size_t s = 0; s < setups.size(); ++s)
      for (const int stage : {0, 1, 2, 3}) {
        CAPTURE(ranks);
        CAPTURE(s);
        CAPTURE(stage);
        CHECK(train_on(ranks, setups[s], stage) == first);
      }
  }
}

}  // namespace

TEST_CASE("a unit around others trains like one that stays open next to them") {
  for (const int accumulation : {1, 3}) {
    Setup nested, learned;
    nested.accumulation = learned.accumulation = accumulation;
    learned.declared.learns = true;
    check_equal({nested, learned});
  }
}

TEST_CASE("a unit that comes again adds up its gradients, declared so or learned") {
  const Calls calls = {"a", "b", "a", "c", "b", "a", "d"};
  for (const int accumulation : {1, 2}) {
    Setup learned;
    learned.declared.learns = true;
    learned.whole_gradients = true;
    learned.accumulation = accumulation;
    learned.calls = [&](int, int, int) { return calls; };
    check_equal({learned});
  }
  // Declared repetitions follow the first uses.
  const Calls declared = {"a", "b", "c", "d", "b", "a", "b"};
  Setup each, learned;
  each.declared.order = declared;
  each.calls = learned.calls = [&](int, int, int) { return declared; };
  learned.declared.learns = learned.whole_gradients = true;
  check_equal({each, learned});
}

TEST_CASE("units that a pass leaves out count as zero, on some ranks too") {
  Setup setup, learned;
  setup.declared.optional = learned.declared.optional = true;
  learned.declared.learns = true;
  setup.calls = learned.calls = [](int rank, int step, int micro) {
    Calls calls;
    for (const char* name : {"a", "b", "c", "d"})
      if ((name[0] + rank + 2 * step + micro) % 3 != 0) calls.push_back(name);
    return calls;
  };
  for (const int accumulation : {1, 2}) {
    setup.accumulation = learned.accumulation = accumulation;
    check_equal({setup, learned});
  }
}

TEST_CASE("ranks that open different units in the first pass agree on one order") {
  zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
    for (const int stage : {0, 3}) {
      Declaration declared;
      declared.optional = declared.learns = true;
      zero::Engine engine(runtime, chain::describe(declared), config_of(stage));
      engine.initialize(chain::fill);
      const std::vector<Calls> calls = {{"d", "b"}, {"b", "d"}, {"b"}};
      for (zero::MicroStep micro : engine.micro_steps()) {
        chain::Pass pass(engine, at_once, true);
        micro.loss(*pass.forward(calls[runtime.rank()], 0.5f));
        if (runtime.rank() > 0) pass.backward();
      }
      engine.step();
      std::string order;
      for (const zero::Unit* unit : engine.forward_order())
        order += std::string(unit->name()) + " ";
      CHECK(order == "outer a b d b c ");
      engine.digest();
    }
  });
}

TEST_CASE("an evaluation before the first step shows the order too") {
  const auto body = [&](zero::Runtime& runtime) {
    Declaration declared;
    declared.learns = true;
    zero::Engine engine(runtime, chain::describe(declared), config_of(3));
    engine.initialize(chain::fill);
    const Calls calls = {"d", "c", "b", "a", "d"};
    int batches = 0;
    for (zero::Evaluation pass = engine.evaluate(); pass.next(batches < 1 + runtime.rank());
         ++batches)
      chain::Pass(engine, at_once, true).forward(calls, 0.5f);
    for (zero::MicroStep micro : engine.micro_steps()) {
      chain::Pass pass(engine, at_once, true);
      micro.loss(*pass.forward(calls, 0.5f));
      pass.backward();
    }
    CHECK(engine.step().wait().step == 1);
    CHECK(engine.forward_order().size() == 6);
    CHECK(engine.forward_order()[1]->name() == "d");
  };
  const std::string said = zero::tests::stderr_of([&] { zero::testing::run_ranks(2, body); });
  CHECK(contains(said, "zero: units run in the order of the first pass: outer, d, c, b, a, d\n"));
}

TEST_CASE("another order than the first pass's is refused, with both units") {
  zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
    Declaration declared;
    declared.learns = true;
    zero::Engine engine(runtime, chain::describe(declared), config_of(3, 2));
    engine.initialize(chain::fill);
    const std::string message = refusal<zero::UsageError>([&] {
      for (zero::MicroStep micro : engine.micro_steps()) {
        chain::Pass pass(engine, at_once, true);
        const bool first = micro.index() == 0;
        micro.loss(*pass.forward(first ? Calls{"a", "c", "b", "d"} : Calls{"a", "b", "c", "d"}, 1));
        pass.backward();
      }
    });
    CHECK(contains(message, "forward of unit b was called where forward of unit c comes next"));
    CHECK(contains(message, "the order of the first pass"));
  });
}

TEST_CASE("a first pass without a unit that is not optional is refused") {
  zero::Runtime runtime = zero::Runtime::single();
  Declaration declared;
  declared.learns = true;
  zero::Engine engine(runtime, chain::describe(declared), config_of(3));
  engine.initialize(chain::fill);
  CHECK(contains(refusal<zero::UsageError>([&] {
                   for ([[maybe_unused]] zero::MicroStep micro : engine.micro_steps()) {
                     chain::Pass pass(engine, at_once, true);
                     pass.forward({"a", "b"}, 1);
                     pass.backward();
                   }
                 }),
                 "without a forward scope of unit c; open it, or declare it UnitSpec::optional()"));
}

TEST_CASE("declarations that cannot be nested are refused") {
  zero::ModelSpec model;
  model.unit("outer").param("w", {3});
  model.unit("inner").param("w", {3}).within("outer");
  model.unit("apart").param("w", {3});
  CHECK(contains(refusal<zero::UsageError>([&] { model.unit("late").within("outer"); }),
                 "unit apart stands between them"));
  CHECK(contains(refusal<zero::UsageError>([&] { model.unit("lost").within("nowhere"); }),
                 "not declared before it"));
  CHECK(contains(refusal<zero::UsageError>([&] { model.again("nowhere"); }), "is named"));
  CHECK(contains(refusal<zero::UsageError>([&] { model.again("inner"); }), "lies within outer"));
}

TEST_CASE("step() ends an accumulation of any length") {
  const auto train_freely = [](int ranks, const zero::Config& config, bool says_last) {
    Outcome outcome;
    zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, chain::describe({}), config);
      engine.initialize(chain::fill);
      Outcome own;
      for (const int count : {1, 4, 2}) {
        for (int i = 0; i < count; ++i) {
          zero::MicroStep micro = engine.begin_micro_step(says_last && i + 1 == count);
          CHECK(micro.index() == i);
          chain::Pass pass(engine, at_once, false);
          micro.loss(*pass.forward({"a", "b", "c", "d"}, 0.2f * float(1 + i + runtime.rank())));
          pass.backward();
        }
        own.losses.push_back(engine.step({.mean_over = 4}).wait().loss);
      }
      own.digest = engine.digest();
      if (runtime.is_root()) outcome = own;
    });
    return outcome;
  };
  const auto config_with = [](int stage, zero::GradientSync sync) {
    zero::Config config = config_of(stage, 2);
    config.zero_core.gradient_sync = sync;
    return config;
  };
  using enum zero::GradientSync;
  for (const zero::GradientSync sync : {each, last, inner}) {
    const zero::Config stage0 =
        hybrid::with_sums_of(config_with(0, sync == inner ? last : sync), 2);
    const Outcome first = train_freely(
        4, sync == inner ? hybrid::in_groups(config_with(3, inner), hybrid::rows[0], 2) : stage0,
        true);
    for (const hybrid::Row& row : hybrid::rows)
      for (const bool says_last : {true, false}) {
        CAPTURE(std::string(row.name));
        CAPTURE(says_last);
        CHECK(train_freely(4, hybrid::in_groups(config_with(3, sync), row, 2), says_last) == first);
      }
  }
  for (const zero::GradientSync sync : {each, last})
    for (const int ranks : {1, 2, 3}) {
      const Outcome first = train_freely(ranks, config_with(0, sync), true);
      for (const int stage : {0, 1, 2, 3})
        for (const bool says_last : {true, false}) {
          CAPTURE(ranks);
          CAPTURE(stage);
          CAPTURE(says_last);
          CHECK(train_freely(ranks, config_with(stage, sync), says_last) == first);
        }
    }
}

TEST_CASE("more micro steps than the config allows, and after the last one, are refused") {
  for (const int accumulation : {1, 2}) {
    zero::Runtime runtime = zero::Runtime::single();
    Declaration declared;
    declared.optional = true;
    zero::Engine engine(runtime, chain::describe(declared), config_of(2, accumulation));
    engine.initialize(chain::fill);
    const auto micro_step = [&](bool last) {
      engine.begin_micro_step(last);
      chain::Pass pass(engine, at_once, false);
      pass.forward({"a"}, 1);
      pass.backward();
    };
    micro_step(true);
    CHECK(contains(
        refusal<zero::UsageError>([&] { micro_step(false); }),
        accumulation == 1 ? "gradient_accumulation_steps is 1" : "after the last micro step"));
  }
}

TEST_CASE("a backward that ends early, and one that does not come, count as zero below") {
  zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
    std::map<int, std::uint64_t> digests;
    for (const int stage : {0, 1, 2, 3}) {
      Declaration declared;
      declared.optional = true;
      zero::Engine engine(runtime, chain::describe(declared), config_of(stage, 4));
      engine.initialize(chain::fill);
      for (const std::size_t calls_left : {2, 0, 9, 1}) {
        engine.begin_micro_step();
        chain::Pass pass(engine, at_once, false);
        pass.forward({"a", "b", "c", "d"}, 1);
        if (calls_left != 9 || runtime.rank() == 1) pass.backward(calls_left % 9);
      }
      engine.step();
      digests[stage] = engine.digest();
      CHECK(digests[stage] == digests[0]);
    }
  });
}

TEST_CASE("a unit has the same addresses in all its scopes") {
  zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
    for (const int stage : {0, 2, 3}) {
      Declaration declared;
      declared.learns = true;
      zero::Engine engine(runtime, chain::describe(declared), config_of(stage));
      engine.initialize(chain::fill);
      std::map<std::string, const void*> values;
      std::map<std::string, void*> gradients;
      const auto check = [](auto& known, const zero::Unit& unit, auto* address) {
        CHECK(known.emplace(unit.name(), address).first->second == address);
        CHECK(reinterpret_cast<std::uintptr_t>(address) % 64 == 0);
      };
      for (int step = 0; step < 3; ++step) {
        for (zero::MicroStep micro : engine.micro_steps()) {
          micro.loss(0);
          auto outer = engine.unit("outer").forward();
          for (const char* name : {"c", "a", "d", "b"}) {
            zero::Unit& unit = engine.unit(name);
            check(values, unit, unit.forward().value<float>("b"));
          }
          auto outer_backward = engine.unit("outer").backward();
          for (const char* name : {"b", "d", "a", "c"}) {
            zero::Unit& unit = engine.unit(name);
            zero::BackwardScope scope = unit.backward();
            check(values, unit, scope.value<float>("b"));
            check(gradients, unit, scope.grad<float>("b"));
          }
        }
        engine.step();
        const float* resident = engine.resident<float>("c.b");
        const bool sharded = stage == 3 || zero::detail::strict_mode();
        CHECK((sharded ? resident == nullptr : resident == values["c"]));
      }
    }
  });
}

TEST_CASE("slots of units within others do not grow with depth") {
  const auto slots_of = [](int blocks) {
    zero::ModelSpec model;
    model.unit("model").param("table", {1000});
    for (int b = 0; b < blocks; ++b) {
      const std::string block = "h." + std::to_string(b);
      model.unit(block).param("norm", {300}).within("model");
      for (const char* part : {".attention", ".mlp"})
        model.unit(block + part).param("w", {700}).within(block);
    }
    const zero::detail::EnginePlan plan(model.declared(), config_of(3), {0, 2});
    return plan.inputs.parameter_slots.slots;
  };
  CHECK(slots_of(12) == 5);  // one for the model, two for blocks, two for their parts
  CHECK(slots_of(48) == 5);
}
