#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <thread>

#include "tests/support/models.h"
#include "tests/support/refusal.h"
#include "tests/support/stderr_of.h"
#include "zero/base/time_limit.h"
#include "zero/testing.h"

namespace {

using zero::tests::contains;

std::string failure_of(const std::function<void()>& call, int* code = nullptr) {
  try {
    call();
  } catch (const zero::Error& error) {
    if (code != nullptr) *code = error.exit_code();
    return error.what();
  }
  return "";
}

zero::Config small_config() {
  zero::Config config;
  config.batch.train_micro_batch_size_per_gpu = 1;
  return config;
}

}  // namespace

TEST_CASE("sum adds over ranks") {
  zero::testing::run_ranks(3, [](zero::Runtime& runtime) {
    CHECK(runtime.sum(runtime.rank() + 0.5) == 4.5);
    CHECK(runtime.size() == 3);
  });
}

TEST_CASE("the first cause reaches every rank") {
  std::atomic<int> told{0};
  int code = 0;
  const std::string message = failure_of(
      [&] {
        zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
          if (runtime.rank() == 1) runtime.fail("the data ran out");
          try {
            runtime.sum(1);
          } catch (const zero::PeerFailed& error) {
            if (std::string(error.what()).find("the data ran out") != std::string::npos) ++told;
            throw;
          }
        });
      },
      &code);
  CHECK(message.find("the data ran out") != std::string::npos);
  CHECK(told == 2);
}

TEST_CASE("a thrown object need not be a std::exception") {
  std::atomic<int> told{0}, rethrown{0};
  try {
    zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
      if (runtime.rank() == 1) throw 42;
      int code = 0;
      const std::string message = failure_of([&] { runtime.sum(1); }, &code);
      if (contains(message, "an exception that is not a std::exception") && code == 70) ++told;
    });
  } catch (int thrown) {
    rethrown = thrown;
  }
  CHECK(rethrown == 42);
  CHECK(told == 2);

  int code = 0;
  const std::string text = zero::tests::stderr_of([&] {
    zero::RuntimeOptions options;
    options.abort_job = false;
    options.catch_signals = false;
    code = zero::run(
        0, nullptr, [](zero::Runtime&) { throw 42; }, options);
  });
  CHECK(code == 70);
  CHECK(text == "zero: rank 0: an exception that is not a std::exception\n");
}

TEST_CASE("an unknown device is refused") {
  zero::RuntimeOptions options;
  options.device = "gpu";
  CHECK_THROWS_WITH_AS(zero::Runtime::single(options), doctest::Contains("auto, cpu or cuda"),
                       zero::ConfigError);
}

TEST_CASE("ranks as threads leave the signals of the program alone") {
  const auto before = std::signal(SIGTERM, SIG_DFL);
  zero::testing::run_ranks(1, [](zero::Runtime&) {});
  CHECK((std::signal(SIGTERM, before) == SIG_DFL));
}

TEST_CASE("on request a line of JSON follows the last words") {
  zero::RuntimeOptions options;
  options.abort_job = options.catch_signals = false;
  ::setenv("ZERO_ERROR_JSON", "1", 1);
  const std::string text = zero::tests::stderr_of([&] {
    zero::run(
        0, nullptr, [](zero::Runtime&) { throw zero::SaveError("a \"b\\c\"\n\xff"); }, options);
  });
  ::unsetenv("ZERO_ERROR_JSON");
  CHECK(contains(text, "zero: rank 0: a \"b"));
  CHECK(contains(text, "\n{\"zerr\":\"SAVE\",\"rank\":0,\"seen_by\":0,\"host\":\""));
  CHECK(contains(text, ",\"pid\":" + std::to_string(::getpid()) +
                           ",\"exit_code\":14,\"message\":\"a \\\"b\\\\c\\\"\\u000a\\\\xff\"}\n"));
}

TEST_CASE("a time limit beyond the range of clocks is a long one") {
  for (const double seconds : {1e10, 1e30, std::numeric_limits<double>::infinity()}) {
    CAPTURE(seconds);
    zero::testing::run_ranks(2, [seconds](zero::Runtime& runtime) {
      zero::Config config = small_config();
      config.zero_core.time_limit_seconds = seconds;
      zero::Engine engine(runtime, models::random(1), config);
      if (runtime.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      engine.initialize([](zero::ParamShard shard) { std::ranges::fill(shard.values, 0.5f); });
      CHECK(engine.digest() != 0);
    });
  }
  CHECK(zero::time_limit_of(0.25) == std::chrono::milliseconds(250));
  CHECK(zero::time_limit_of(1e9) == std::chrono::seconds(1'000'000'000));
}

TEST_CASE("the calls of a Runtime have the time limit of the engine that was made last") {
  int code = 0;
  const std::string message = failure_of(
      [] {
        zero::testing::run_ranks(2, [](zero::Runtime& runtime) {
          zero::Config config = small_config();
          config.zero_core.time_limit_seconds = 0.2;
          zero::Engine engine(runtime, models::random(1), config);
          if (runtime.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
          runtime.sum(1.0);
        });
      },
      &code);
  CHECK(code == 18);
  CHECK(contains(message, "Runtime::sum"));
}

TEST_CASE("ranks with another config or model are named with the first difference") {
  int code = 0;
  const std::string config_message = failure_of(
      [] {
        zero::testing::run_ranks(3, [](zero::Runtime& runtime) {
          zero::Config config = small_config();
          if (runtime.rank() == 2) config.optimizer.learning_rate = 0.5;
          zero::Engine engine(runtime, models::random(1), config);
        });
      },
      &code);
  CHECK(code == 12);
  CHECK(config_message.find("rank 2") != std::string::npos);
  CHECK(config_message.find("optimizer.params.lr = 0.5") != std::string::npos);

  const std::string model_message = failure_of(
      [] {
        zero::testing::run_ranks(2, [](zero::Runtime& runtime) {
          zero::ModelSpec model;
          model.unit("fc").param("w", {4, 4 + runtime.rank()});
          zero::Engine engine(runtime, model, small_config());
        });
      },
      &code);
  CHECK(code == 12);
  CHECK(model_message.find("fc.w [4, 5]") != std::string::npos);
}

TEST_CASE("bad declarations are errors that name them") {
  zero::ModelSpec model;
  zero::UnitSpec& unit = model.unit("fc");
  unit.param("w", {2});
  CHECK(failure_of([&] { unit.param("w", {3}); }).find("fc.w") != std::string::npos);
  CHECK(failure_of([&] { unit.param("v", {-1}); }).find("fc.v") != std::string::npos);
  CHECK(failure_of([&] { model.unit("fc"); }).find("twice") != std::string::npos);
  const std::string too_long = failure_of([&] { unit.param(std::string(958, 'x'), {2}); });
  CHECK(contains(too_long, "the name fc.xxx"));
  CHECK(contains(too_long, "has 961 bytes"));
  CHECK(contains(too_long, "at most 960"));
  CHECK(contains(failure_of([&] { unit.buffer(std::string(958, 'x'), {2}); }), "at most 960"));
  unit.uses("embde.w");
  model.unit("embed").param("w", {2});
  zero::Runtime runtime = zero::Runtime::single();
  const std::string message =
      failure_of([&] { zero::Engine engine(runtime, model, small_config()); });
  CHECK(message.find("did you mean \"embed.w\"") != std::string::npos);
}
