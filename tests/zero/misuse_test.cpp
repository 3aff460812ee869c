// Omissions of programs, and differences between ranks: errors name them, at every accumulation.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/support/refusal.h"
#include "tests/support/stderr_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_model.h"
#include "zero/base/acting.h"
#include "zero/testing.h"

namespace {

using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::stderr_of;

const toy::Dims dims;

// Runs the micro steps of one optimizer step, reporting the loss of the first `told` ones.
void run_micro_steps(zero::Engine& engine, int told = 1 << 20) {
  toy::Activations a = toy::make_activations(dims);
  for (zero::MicroStep micro : engine.micro_steps()) {
    toy::load_samples(dims, a, 0);
    const double loss = toy::micro_step<float>(engine, dims, a, micro.loss_scale());
    if (micro.index() < told) micro.loss(loss);
  }
}

}  // namespace

TEST_CASE("a forgotten step() is named when micro_steps() is run again") {
  zero::Runtime runtime = zero::Runtime::single();
  for (const int accumulation : {1, 2, 3}) {
    CAPTURE(accumulation);
    zero::Engine engine(runtime, toy::describe(dims), toy::config(0, dims, accumulation));
    engine.initialize(toy::fill);
    run_micro_steps(engine);
    engine.step();
    run_micro_steps(engine);
    CHECK(contains(refusal<zero::UsageError>([&] { run_micro_steps(engine); }),
                   "Engine::micro_steps() was begun again before Engine::step()"));
    // The error loses nothing.
    engine.step();
    run_micro_steps(engine);
    CHECK(engine.step().wait().step == 3);
  }
}

TEST_CASE("a scope outside of a pass, and in an evaluation before next(), names both") {
  zero::Runtime runtime = zero::Runtime::single();
  zero::Engine engine(runtime, toy::describe(dims), toy::config(3, dims));
  engine.initialize(toy::fill);
  const zero::Evaluation evaluation = engine.evaluate();
  const std::string message =
      refusal<zero::UsageError>([&] { auto scope = engine.unit("embed").forward(); });
  CHECK(contains(message, "Evaluation::next(true), which comes before each batch"));
  CHECK(contains(message, "Engine::micro_steps()"));
}

TEST_CASE("an iterator may be looked at twice, and one range serves every step") {
  zero::Runtime runtime = zero::Runtime::single();
  zero::Engine engine(runtime, toy::describe(dims), toy::config(0, dims, 2));
  engine.initialize(toy::fill);
  toy::Activations a = toy::make_activations(dims);
  const zero::MicroSteps steps = engine.micro_steps();
  for (int step = 0; step < 2; ++step) {
    for (auto it = steps.begin(); it != steps.end(); ++it) {
      toy::load_samples(dims, a, 0);
      const double loss = toy::micro_step<float>(engine, dims, a, (*it).loss_scale());
      (*it).loss(loss);
    }
    CHECK(engine.step().wait().step == step + 1);
  }
}

TEST_CASE("calls that need another number of micro steps than the step's are refused") {
  zero::testing::run_ranks(2, [](zero::Runtime& runtime) {
    zero::Config config = toy::config(2, dims);
    config.zero_core.rank_independent = true;
    config.batch = {3 * dims.batch, dims.batch, 0};
    zero::Engine engine(runtime, toy::describe(dims), config);
    engine.initialize(toy::fill);
    CHECK(contains(refusal<zero::UsageError>([&] { engine.step(); }),
                   "after 0 of " + std::to_string(runtime.is_root() ? 2 : 1) + " micro steps"));
    run_micro_steps(engine);
    CHECK(contains(refusal<zero::UsageError>([&] { engine.begin_micro_step(); }),
                   "after all " + std::to_string(runtime.is_root() ? 2 : 1) + " micro batches"));
    CHECK(contains(refusal<zero::UsageError>([&] { engine.step({.mean_over = 2}); }),
                   "StepOptions::mean_over"));
    std::vector<float> gradient(7);
    CHECK(contains(
        refusal<zero::UsageError>([&] { engine.read_gradient("embed.unused", gradient, 2); }),
        "another mean"));
    engine.read_gradient("embed.unused", gradient);
    CHECK(engine.step().wait().step == 1);
  });
}

TEST_CASE("missing losses are reported once, only by the root") {
  for (const int accumulation : {1, 2})
    for (const int told : {0, accumulation - 1, accumulation}) {
      CAPTURE(accumulation);
      CAPTURE(told);
      const std::string said = stderr_of([&] {
        zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
          zero::Engine engine(runtime, toy::describe(dims), toy::config(2, dims, accumulation));
          engine.initialize(toy::fill);
          for (int step = 0; step < 3; ++step) {
            run_micro_steps(engine, told);
            engine.step();
          }
        });
      });
      const std::string part = "MicroStep::loss() was not called in ";
      const auto at = said.find(part);
      if (told == accumulation) {
        CHECK(at == std::string::npos);
        continue;
      }
      REQUIRE(at != std::string::npos);
      CHECK(said.find(part, at + 1) == std::string::npos);
      CHECK(contains(said, part + std::to_string(accumulation - told) + " of the " +
                               std::to_string(accumulation) + " micro steps of step 1"));
    }
}

TEST_CASE("gradients that are never requested are reported once") {
  const std::string said = stderr_of([] {
    zero::Runtime runtime = zero::Runtime::single();
    zero::Engine engine(runtime, toy::describe(dims), toy::config(0, dims));
    engine.initialize(toy::fill);
    for (int step = 0; step < 2; ++step) {
      run_micro_steps(engine);
      engine.step();
    }
  });
  const auto at = said.find("no gradient was asked for of embed.unused");
  CHECK(at != std::string::npos);
  CHECK(said.find("no gradient", at + 1) == std::string::npos);
}

TEST_CASE("ranks that differ before a step name the difference, as people write it") {
  const auto differing = [](const std::function<zero::StepOptions(int)>& options_of) {
    return refusal<zero::DisagreementError>([&] {
      zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, toy::describe(dims), toy::config(1, dims));
        engine.initialize(toy::fill);
        run_micro_steps(engine);
        engine.step(options_of(runtime.rank()));
      });
    });
  };
  const std::string rates = differing(
      [](int rank) { return zero::StepOptions{.learning_rate = rank == 1 ? 0.5 : 1e-5}; });
  CHECK(contains(rates,
                 "before step 1 ranks differ in learning rate: rank 0 has 1e-05, rank 1 has 0.5;"));
  const auto deciding = [](zero::Decision decision) {
    return zero::StepOptions{.inspect = [=](zero::Gradients&) { return decision; }};
  };
  CHECK(contains(differing([&](int rank) {
                   return rank == 1 ? deciding(zero::Decision::apply) : zero::StepOptions{};
                 }),
                 "ranks differ in StepOptions::inspect: rank 0 has none, rank 1 has one;"));
  CHECK(contains(differing([&](int rank) {
                   return deciding(rank == 1 ? zero::Decision::skip : zero::Decision::apply);
                 }),
                 "the decision of StepOptions::inspect: rank 0 has apply, rank 1 has skip;"));
}

TEST_CASE("units are found by name, however many there are; a name is used once") {
  zero::ModelSpec model;
  constexpr int count = 300;
  for (int i = 0; i < count; ++i) model.unit("u" + std::to_string(i)).param("w", {3});
  CHECK(contains(refusal<zero::UsageError>([&] { model.unit("u7"); }), "\"u7\" is declared twice"));
  zero::Runtime runtime = zero::Runtime::single();
  zero::Engine engine(runtime, model, toy::config(0, dims));
  for (int i = 0; i < count; ++i) CHECK(engine.unit("u" + std::to_string(i)).index() == i);
  CHECK(contains(refusal<zero::UsageError>([&] { engine.unit("u3000"); }), "did you mean"));
}

TEST_CASE("an engine of any program says what its config has to say, once, on the root") {
  zero::Config config = toy::config(2, dims);
  config.notices = {"a.key: has no effect"};
  config.csv_monitor.enabled = config.comms_logger = true;
  config.zero_core.prometheus = "unused.prom";
  const auto said_by = [&] {
    return stderr_of([&] {
      zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, toy::describe(dims), config);
        engine.initialize(toy::fill);
        for (int step = 0; step < 2; ++step) {
          run_micro_steps(engine);
          engine.step();
        }
      });
    });
  };
  zero::is_used(zero::Acting::monitor) = zero::is_used(zero::Acting::diagnostics) = false;
  const std::string said = said_by();
  for (const char* part : {"zero: a.key: has no effect\n", "csv_monitor, zero_core.prometheus: ",
                           "zero::Monitor (zero/monitor/monitor.h)",
                           "comms_logger: ", "zero::Diagnostics (zero/monitor/diagnostics.h)"}) {
    CAPTURE(said);
    const std::size_t at = said.find(part);
    CHECK_MESSAGE(at != std::string::npos, part);
    CHECK(said.find(part, at + 1) == std::string::npos);
  }
  // A program that makes them is not told.
  config.notices.clear();
  config.zero_core.prometheus.clear();
  config.csv_monitor = {};
  config.tensorboard.enabled = config.wall_clock_breakdown = true;
  zero::is_used(zero::Acting::monitor) = zero::is_used(zero::Acting::diagnostics) = true;
  CHECK(!contains(said_by(), "zero::"));
}

TEST_CASE("a trace that the config requests is tried at the start, and written without a call") {
  const zero::tests::TemporaryDirectory directory;
  zero::Config config = toy::config(1, dims);
  const auto run = [&] {
    zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe(dims), config);
      engine.initialize(toy::fill);
      run_micro_steps(engine);
      engine.step();
    });
  };
  config.zero_core.trace = directory / "t.json";
  run();
  CHECK(std::filesystem::file_size(directory / "t.json") > 100);
  config.zero_core.trace = directory / "none/t.json";
  CHECK(contains(refusal<zero::ConfigError>(run), "zero_core.trace: "));
}
