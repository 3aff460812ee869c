// Models whose passes may come in any order, and any number of times before a step.
#include <doctest/doctest.h>

#include <functional>
#include <optional>
#include <ostream>
#include <vector>

#include "tests/support/layer_chain.h"
#include "tests/support/refusal.h"
#include "tests/support/sweep.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"
#include "zero/plan/step_plan.h"
#include "zero/testing.h"

namespace {

using Calls = std::vector<std::string>;
using zero::tests::contains;
using zero::tests::refusal;

const Calls all = {"a", "b", "c", "d"};

zero::Config config_of(int stage, zero::GradientSync sync, int accumulation) {
  zero::Config config = toy::config(stage, {}, accumulation);
  config.zero_core.gradient_sync = sync;
  config.zero_core.time_limit_seconds = 60;
  return config;
}

void at_once(std::function<void()> kernel) {
  kernel();
}

struct Outcome {
  std::vector<double> losses;
  std::uint64_t digest = 0;
  bool operator==(const Outcome&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
    for (const double loss : outcome.losses) out << loss << " ";
    return out << std::hex << outcome.digest;
  }
};

class Loop {
 public:
  Loop(zero::Runtime& runtime, zero::Engine& engine) : runtime_(runtime), engine_(engine) {}

  int rank() const { return runtime_.rank(); }
  zero::Engine& engine() { return engine_; }
  // Runs a micro step with this forward order; backward may be left out.
  void micro_step(const Calls& calls, bool last = false, bool backward = true,
                  const std::function<void()>& between = {}) {
    zero::MicroStep micro = engine_.begin_micro_step(last);
    chain::Pass pass(engine_, at_once, true);
    micro.loss(*pass.forward(calls, 0.1f * static_cast<float>(1 + rank() + ++batches_)));
    if (between) between();
    if (backward) pass.backward();
  }
  std::vector<double> evaluate(const std::vector<Calls>& batches) {
    std::vector<double> losses;
    zero::Evaluation pass = engine_.evaluate();
    for (const Calls& calls : batches) {
      pass.next(true);
      losses.push_back(*chain::Pass(engine_, at_once, true).forward(calls, 0.3f));
    }
    pass.next(false);
    return losses;
  }
  void note(const std::vector<double>& losses) {
    losses_.insert(losses_.end(), losses.begin(), losses.end());
  }
  void step() { note_loss(engine_.step({.mean_over = 1})); }
  void note_loss(zero::StepTicket step) { losses_.push_back(step.wait().loss); }
  std::vector<double> losses() const { return losses_; }

 private:
  zero::Runtime& runtime_;
  zero::Engine& engine_;
  int batches_ = 0;
  std::vector<double> losses_;
};

using Script = std::function<void(Loop&)>;

Outcome run(int ranks, zero::Config config, const Script& script) {
  Outcome outcome;
  // Each unit has a slot of its own, and stays there between the micro steps of a step.
  if (ranks == 2) config.zero_optimization.prefetch_bucket_size = chain::width * 100;
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    chain::Declaration declared;
    declared.optional = declared.free = true;
    zero::Engine engine(runtime, chain::describe(declared), config);
    engine.initialize(chain::fill);
    Loop loop(runtime, engine);
    script(loop);
    const std::uint64_t digest = engine.digest();
    if (runtime.is_root()) outcome = {loop.losses(), digest};
  });
  return outcome;
}

// The script must have equal bits at all stages, and those of `plain`, the same program without the
// feature under test.
void check_equal(const Script& script, const Script& plain, int accumulation = 1,
                 bool equal_losses = true) {
  sweep::Part part(1, 7);
  for (const int ranks : {1, 2, 3})
    for (const zero::GradientSync sync : {zero::GradientSync::each, zero::GradientSync::last}) {
      std::optional<Outcome> first;
      for (const int stage : {0, 1, 2, 3}) {
        if (!part.next_is_due()) continue;
        if (!first) first = run(ranks, config_of(0, sync, accumulation), plain);
        CAPTURE(ranks);
        CAPTURE(stage);
        CAPTURE(static_cast<int>(sync));
        const Outcome outcome = run(ranks, config_of(stage, sync, accumulation), script);
        CHECK(outcome.digest == first->digest);
        if (equal_losses) CHECK(outcome == *first);
      }
    }
}

void check_equal(const Script& script, int accumulation = 1) {
  check_equal(script, script, accumulation);
}

}  // namespace

TEST_CASE("evaluations, reads, saves and writes among micro steps change nothing") {
  const zero::tests::TemporaryDirectory directory;
  const auto script = [&](bool disturbed) {
    return [&, disturbed](Loop& loop) {
      std::vector<float> whole(chain::width);
      const auto look = [&] {
        if (!disturbed) return;
        loop.evaluate({{"a", "b", "d"}});
        loop.evaluate({{"d", "a"}});
        loop.engine().read("b.w", "value", whole);
        loop.engine().write("b.w", whole);
        loop.engine().save_checkpoint(directory.path().string(), {.replace = true}).wait();
      };
      for (int step = 0; step < 3; ++step) {
        for (int micro = 0; micro < 3; ++micro) {
          loop.micro_step(all, false, true, look);
          look();
        }
        loop.step();
      }
    };
  };
  check_equal(script(true), script(false), 3);
}

TEST_CASE("micro steps that leave the order, on some ranks or on all") {
  check_equal([](Loop& loop) {
    loop.micro_step({"a", "d"});
    loop.step();
    loop.micro_step({"a", "c", "d"});  // for the first time
    loop.step();
    loop.micro_step(loop.rank() == 1 ? Calls{"d", "b", "a"} : Calls{"a", "d"});
    loop.micro_step(loop.rank() == 0 ? Calls{"c", "c", "a"} : Calls{"b"});
    loop.step();
    for (int again = 0; again < 2; ++again) {
      loop.micro_step({"a", "b", "a", "b", "d"});
      loop.step();
    }
  });
}

TEST_CASE("a pass that leaves the order has the bits of one that follows it") {
  const auto script = [](bool learned) {
    return [learned](Loop& loop) {
      loop.micro_step(learned ? Calls{"a", "b", "c", "d"} : Calls{"a", "d"}, false, false);
      loop.engine().drop_gradients();
      for (int step = 0; step < 2; ++step) {
        loop.micro_step({"a", "c", "d"});
        loop.step();
      }
    };
  };
  // Losses differ, since the forward pass without a backward has its share of the first step's
  // loss.
  check_equal(script(false), script(true), 1, false);
}

TEST_CASE("units that the first pass leaves out are there for the next one") {
  for (const Calls& first : {Calls{"a", "c"}, Calls{"b"}, Calls{"c", "d"}, Calls{"a"}}) {
    check_equal(
        [&](Loop& loop) {
          for (int step = 0; step < 2; ++step) {
            loop.micro_step(first, false, first.size() > 1);
            loop.micro_step(all);
            loop.micro_step(first, true);
            loop.step();
          }
        },
        3);
    check_equal([&](Loop& loop) {
      loop.note(loop.evaluate({first, all, first, all}));
      loop.micro_step(all, true);
      loop.step();
    });
  }
}

TEST_CASE("a rank without a last batch follows those whose first pass leaves units out") {
  for (const Calls& first : {Calls{"a", "c"}, Calls{"b"}})
    for (const int ranks : {2, 3}) {
      zero::Config config = config_of(0, zero::GradientSync::automatic, 1);
      config.zero_core.rank_independent = true;
      config.batch = {ranks + 1, 1, 0};
      const Script script = [&](Loop& loop) {
        for (int step = 0; step < 2; ++step) {
          for (int micro = 0; loop.engine().more_micro_steps(); ++micro)
            loop.micro_step(step + micro == 0 ? first : all);
          loop.note_loss(loop.engine().step());
        }
      };
      const Outcome expected = run(ranks, config, script);
      for (const int stage : {1, 2, 3}) {
        CAPTURE(ranks);
        CAPTURE(stage);
        config.zero_optimization.stage = stage;
        CHECK(run(ranks, config, script) == expected);
      }
    }
}

TEST_CASE("several micro steps and several forwards before a step of one") {
  check_equal([](Loop& loop) {
    for (int step = 0; step < 2; ++step) {
      loop.micro_step(all);
      loop.micro_step(all);
      loop.micro_step({"b"});
      loop.step();
      loop.micro_step(all, false, false);  // its backward is never run
      loop.micro_step(all);
      loop.step();
    }
  });
}

TEST_CASE("dropped gradients do not come back, and the forward that waits keeps its place") {
  const auto script = [](bool drops) {
    return [drops](Loop& loop) {
      for (int step = 0; step < 2; ++step) {
        const auto forget = [&] {
          const bool had_some = loop.engine().drop_gradients();
          if (drops) CHECK(had_some);
        };
        if (drops) {
          loop.micro_step(all);
          loop.micro_step({"d", "c"});
        } else {
          loop.micro_step({}, false, false), loop.micro_step({}, false, false);
          loop.engine().drop_gradients();
        }
        loop.micro_step(all, false, true, forget);
        loop.step();
      }
    };
  };
  for (const int ranks : {1, 2})
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(ranks);
      CAPTURE(stage);
      const auto config = config_of(stage, zero::GradientSync::each, 1);
      CHECK(run(ranks, config, script(true)) == run(ranks, config, script(false)));
    }
}

TEST_CASE("gradients among micro steps are averaged over them and the ranks") {
  for (const zero::GradientSync sync : {zero::GradientSync::each, zero::GradientSync::last})
    for (const int stage : {0, 1, 2, 3}) {
      run(2, config_of(stage, sync, 2), [&](Loop& loop) {
        std::vector<float> early(chain::width), late(chain::width);
        loop.micro_step(all);
        loop.micro_step(all);
        loop.engine().read_gradient("b.w", early, 2);
        loop.engine().step({.mean_over = 2});
        loop.engine().read_gradient("b.w", late);
        for (int i = 0; i < chain::width; ++i)
          CHECK(early[i] == doctest::Approx(late[i]).epsilon(1e-6));
      });
    }
}

TEST_CASE("orders merge to the shortest one that holds both") {
  using Order = std::vector<int>;
  CHECK(zero::detail::merged_order({0, 1, 2}, {0, 3, 2}).size() == 4);
  CHECK(zero::detail::merged_order({0, 1, 2}, {0, 1, 2, 0, 1, 2}) == Order{0, 1, 2, 0, 1, 2});
  CHECK(zero::detail::merged_order({}, {2, 1}) == Order{2, 1});
  CHECK(zero::detail::merged_order({2, 1}, {2, 1}) == Order{2, 1});
}

TEST_CASE("an order is free for optional units alone") {
  zero::ModelSpec model;
  model.unit("a").param("w", {3});
  CHECK(contains(refusal<zero::UsageError>([&] { model.any_order(); }), "unit a is not optional"));
}
