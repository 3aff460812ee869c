// Strict mode: a fault that only stage 3 reveals fails at every stage and on one rank, and programs
// that keep the rules get the bits of their stage.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <optional>

#include "tests/support/refusal.h"
#include "tests/support/stderr_of.h"
#include "tests/support/toy_model.h"
#include "zero/pass/hidden_memory.h"
#include "zero/runtime/strict_mode.h"
#include "zero/testing.h"

// A function of AddressSanitizer's runtime, if it is linked.
extern "C" int __asan_address_is_poisoned(const volatile void*) __attribute__((weak));

namespace {

using zero::tests::contains;
using zero::tests::refusal;

const toy::Dims dims;
constexpr int stages[] = {0, 1, 2, 3};

class Strictly {
 public:
  explicit Strictly(const char* value = "1") {
    const char* text = std::getenv("ZERO_STRICT");
    if (text != nullptr) before_ = text;
    ::setenv("ZERO_STRICT", value, 1);
  }
  ~Strictly() {
    if (before_)
      ::setenv("ZERO_STRICT", before_->c_str(), 1);
    else
      ::unsetenv("ZERO_STRICT");
  }

 private:
  std::optional<std::string> before_;
};

void run_step(zero::Runtime& runtime, zero::Engine& engine) {
  toy::Activations a = toy::make_activations(dims);
  for (zero::MicroStep micro : engine.micro_steps()) {
    toy::load_samples(dims, a, (engine.step_count() * 8 + runtime.rank()) * dims.batch);
    micro.loss(toy::micro_step<float>(engine, dims, a, micro.loss_scale()));
  }
  engine.step();
}

// Runs on thread ranks, for every stage and number of ranks in turn.
void at_all_stages(std::initializer_list<int> numbers_of_ranks,
                   const std::function<void(zero::Runtime&, zero::Engine&)>& body) {
  const Strictly strictly;
  for (const int stage : stages)
    for (const int ranks : numbers_of_ranks) {
      CAPTURE(stage);
      CAPTURE(ranks);
      zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims));
        engine.initialize(toy::fill);
        body(runtime, engine);
      });
    }
}

// Returns whether the program may not use it now.
bool is_hidden(const float* value) {
  if (zero::detail::sanitizer_watches()) return __asan_address_is_poisoned(value) != 0;
  return std::isnan(*value);
}

TEST_CASE("strict mode is asked for by the environment, in two words") {
  {
    const Strictly strictly("1");
    CHECK(zero::detail::strict_mode());
  }
  {
    const Strictly strictly("0");
    CHECK(!zero::detail::strict_mode());
  }
  const Strictly strictly("yes");
  CHECK(contains(refusal<zero::ConfigError>([] { zero::detail::strict_mode(); }),
                 "ZERO_STRICT is \"yes\"; expected 0 or 1"));
}

TEST_CASE("strict: as many scopes may be open as stage 3 has slots, at every stage") {
  at_all_stages({1, 2}, [](zero::Runtime&, zero::Engine& engine) {
    const std::string message = refusal<zero::UsageError>([&] {
      for (zero::MicroStep micro : engine.micro_steps()) {
        (void)micro;
        (void)engine.unit("embed").forward();
        const auto first = engine.unit("block.0").forward();
        const auto second = engine.unit("block.1").forward();
        CHECK(first.value<float>("weight")[3] == toy::start_value("block.0.weight", 3, 0.7f));
        CHECK(second.value<float>("weight")[3] == toy::start_value("block.1.weight", 3, 0.7f));
        (void)engine.unit("block.2").forward();
      }
    });
    CHECK_MESSAGE(contains(message, "block.2 needs the slot of a scope that is still open"),
                  message);
  });
}

TEST_CASE("strict: a call that only some ranks make is named, with the calls of the others") {
  const Strictly strictly;
  for (const int stage : stages) {
    CAPTURE(stage);
    const auto message = [&](const std::function<void(zero::Runtime&, zero::Engine&)>& misuse) {
      return refusal<zero::DisagreementError>([&] {
        zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
          zero::Engine engine(runtime, toy::describe(dims), toy::config(stage, dims));
          engine.initialize(toy::fill);
          run_step(runtime, engine);
          misuse(runtime, engine);
        });
      });
    };
    const auto evaluate = [](zero::Engine& engine) {
      for (zero::Evaluation evaluation = engine.evaluate(); evaluation.next(false);) {
      }
    };
    const std::string alone = message([&](zero::Runtime& runtime, zero::Engine& engine) {
      if (runtime.rank() == 0) evaluate(engine);
      run_step(runtime, engine);
    });
    CHECK_MESSAGE(contains(alone,
                           "rank 1 has \"a micro step\" where rank 0 has "
                           "\"Engine::evaluate()\"; rank 2 has \"a micro step\""),
                  alone);
    const std::string lacking = message([&](zero::Runtime& runtime, zero::Engine& engine) {
      if (runtime.rank() != 1) evaluate(engine);
      run_step(runtime, engine);
    });
    CHECK_MESSAGE(contains(lacking,
                           "rank 1 has \"a micro step\" where rank 0 has "
                           "\"Engine::evaluate()\"; these calls are collective"),
                  lacking);
    const std::string last = message([&](zero::Runtime& runtime, zero::Engine& engine) {
      if (runtime.rank() == 2) engine.digest();
    });
    CHECK_MESSAGE(contains(last,
                           "rank 2 has \"Engine::digest()\" where rank 0 has \"the end of "
                           "the engine\""),
                  last);
    const std::string left = message([&](zero::Runtime& runtime, zero::Engine& engine) {
      for (zero::Evaluation evaluation = engine.evaluate(); evaluation.next(runtime.rank() == 1);)
        break;
      run_step(runtime, engine);
    });
    CHECK_MESSAGE(
        contains(left, "but rank 1 called all_gather of agreement on the call of a micro step"),
        left);
  }
}

TEST_CASE("strict: parameters are hidden from the end of their scope on, wherever they rest") {
  at_all_stages({1, 2}, [](zero::Runtime& runtime, zero::Engine& engine) {
    toy::Activations a = toy::make_activations(dims);
    const float *frozen = nullptr, *early = nullptr, *late = nullptr, *borrowed = nullptr;
    for (zero::MicroStep micro : engine.micro_steps()) {
      toy::load_samples(dims, a, 0);
      micro.loss(0);
      (void)engine.unit("embed").forward();
      {
        const auto scope = engine.unit("block.0").forward();
        early = scope.value<float>("weight"), frozen = scope.value<float>("frozen");
        borrowed = scope.value<float>("block.1.norm");
        CHECK(!is_hidden(early));
        const auto next = engine.unit("block.1").forward();
        CHECK(!is_hidden(borrowed));
      }
      CHECK(is_hidden(early));
      CHECK(is_hidden(early + dims.channels * dims.channels - 1));
      CHECK(is_hidden(frozen));
      for (const char* unit : {"block.2", "block.3"}) (void)engine.unit(unit).forward();
      // Another unit occupies the slot that stage 3 shares between both.
      CHECK(is_hidden(early));
      {
        const auto scope = engine.unit("block.4").forward();
        late = scope.value<float>("weight");
      }
      for (zero::Unit* unit : engine.backward_units()) {
        const auto scope = unit->backward();
        if (unit->name() == "block.4")
          CHECK(scope.value<float>("weight")[3] == toy::start_value("block.4.weight", 3, 0.7f));
        if (unit->name() == "block.0")
          CHECK(scope.value<float>("weight")[3] == toy::start_value("block.0.weight", 3, 0.7f));
      }
      CHECK(is_hidden(late));
    }
    engine.step();
    for (const float* kept : {early, late, frozen, borrowed}) CHECK(is_hidden(kept));
    run_step(runtime, engine);
  });
}

TEST_CASE("strict: a gradient that is written after its scope is named") {
  if (zero::detail::sanitizer_watches()) return;  // it ends the program there
  at_all_stages({1, 2}, [](zero::Runtime&, zero::Engine& engine) {
    float* kept = nullptr;
    const auto pass = [&] {
      for (zero::MicroStep micro : engine.micro_steps()) {
        micro.loss(0);
        for (zero::Unit& unit : engine.units().first(engine.units().size() - 1))
          (void)unit.forward();
        for (zero::Unit* unit : engine.backward_units()) {
          auto scope = unit->backward();
          if (unit->name() != "block.3") continue;
          float* gradient = scope.grad<float>("bias");
          gradient[0] += 1;
          if (kept == nullptr) kept = gradient;
        }
      }
      engine.step();
    };
    pass();
    pass();
    kept[1] += 1e-30f;
    const std::string message = refusal<zero::UsageError>(pass);
    CHECK_MESSAGE(contains(message,
                           "a gradient of unit block.3 was written after the end of its "
                           "scope"),
                  message);
  });
}

TEST_CASE("strict: a kept pointer shows in the gradients, and the skipped step names the place") {
  if (zero::detail::sanitizer_watches()) return;
  const Strictly strictly;
  const std::string said = zero::tests::stderr_of([] {
    zero::Runtime runtime = zero::Runtime::single();
    zero::Engine engine(runtime, toy::describe(dims), toy::config(0, dims));
    engine.initialize(toy::fill);
    const float* kept = nullptr;
    for (zero::MicroStep micro : engine.micro_steps()) {
      micro.loss(0);
      for (zero::Unit& unit : engine.units().first(engine.units().size() - 1)) {
        const auto scope = unit.forward();
        if (unit.name() == "block.0") kept = scope.value<float>("weight");
      }
      for (zero::Unit* unit : engine.backward_units()) {
        auto scope = unit->backward();
        if (unit->name() == "block.3") scope.grad<float>("bias")[0] += kept[0];
      }
    }
    CHECK(engine.step().wait().skipped);
  });
  CHECK_MESSAGE(contains(said, "non-finite gradient in block.3.bias"), said);
  CHECK_MESSAGE(contains(said, "read through a pointer after its scope are NaN"), said);
}

TEST_CASE("strict: the bits are those of the stage") {
  const auto traced = [](const char* strict, int ranks, const zero::Config& config) {
    const Strictly strictly(strict);
    toy::Trace trace;
    zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
      const toy::Trace own = toy::train(runtime, dims, config, 4);
      if (runtime.is_root()) trace = own;
    });
    return trace;
  };
  for (const int stage : stages)
    for (const int ranks : {1, 3})
      for (const int accumulation : {1, 3})
        for (const int kind : {0, 1, 2, 3, 4}) {
          CAPTURE(stage);
          CAPTURE(ranks);
          CAPTURE(accumulation);
          CAPTURE(kind);
          zero::Config config = toy::config(stage, dims, accumulation);
          config.bf16_enabled = kind == 1;
          if (kind == 2) config.zero_core.gradient_sync = zero::GradientSync::each;
          if (kind == 3) config.zero_core.gradient_sync = zero::GradientSync::last;
          if (kind == 3) config.zero_core.reshard_after_forward = false;
          if (kind == 4) config.optimizer = zero::optim::default_options("Muon");
          if (kind == 4) config.grad_accum_dtype = zero::DType::fp32;
          CHECK(traced("1", ranks, config) == traced("0", ranks, config));
        }
}

TEST_CASE("strict: evaluation with uneven batches, a materialized model, and figures as ever") {
  at_all_stages({1, 3}, [](zero::Runtime& runtime, zero::Engine& engine) {
    run_step(runtime, engine);
    const std::uint64_t before = engine.digest();
    toy::Activations a = toy::make_activations(dims);
    double loss = 0, alone = 0;
    int left = runtime.rank() + 1;
    toy::load_samples(dims, a, 100);
    for (zero::Evaluation evaluation = engine.evaluate(); evaluation.next(left > 0); --left)
      loss = toy::evaluate<float>(engine, dims, a);
    {
      const auto full = engine.materialize(0);
      if (runtime.is_root()) alone = toy::evaluate<float>(engine, dims, a);
    }
    if (runtime.is_root()) CHECK(alone == loss);
    CHECK(engine.report().parameter_count > 0);
    CHECK(engine.digest() == before);
    run_step(runtime, engine);
  });
}

}  // namespace
