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
#include "zero/checkpoint/checkpoint_reader.h"
#include "zero/runtime/host_memory.h"
#include "zero/runtime/runtime_core.h"
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

TEST_CASE("ranks share a GPU if the environment says so") {
  zero::RuntimeOptions options;
  CHECK_FALSE(zero::detail::world_options(options).share_gpu);
  setenv("ZERO_SHARE_GPU", "1", 1);
  CHECK(zero::detail::world_options(options).share_gpu);
  options.share_gpu = true;
  setenv("ZERO_SHARE_GPU", "0", 1);
  CHECK_FALSE(zero::detail::world_options(options).share_gpu);
  setenv("ZERO_SHARE_GPU", "yes", 1);
  CHECK(failure_of([&] { zero::detail::world_options(options); }) ==
        "ZERO_SHARE_GPU is \"yes\"; expected 0 or 1");
  unsetenv("ZERO_SHARE_GPU");
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

// Returns the bytes of a rank, with the buffer of saves and loads.
static double engine_bytes(const zero::ModelSpec& model, const zero::Config& config, int ranks) {
  const zero::MemoryPlan plan = zero::plan_memory(model, config, ranks, false);
  std::int64_t bytes = zero::checkpoint::read_buffer_bytes;
  for (const zero::MemoryUse& use : plan.memory) bytes += use.planned;
  return static_cast<double>(bytes);
}

TEST_CASE("memory is judged by all ranks of a host, and of a cgroup") {
  using zero::detail::require_memory;
  constexpr std::int64_t gib = std::int64_t{1} << 30;
  const auto judge = [&](const std::vector<zero::detail::MemoryRoom>& rooms) {
    return failure_of([&] { require_memory(rooms, 2 * gib, "it", "use more hosts"); });
  };
  CHECK(judge({{"host a", 2, 5 * gib}, {"the cgroup of host a", 1, 2 * gib}}) == "");
  CHECK(contains(judge({{"host a", 3, 5 * gib}}),
                 "memory for it: 3 ranks need 6.00 GiB together, and host a has 5.00 GiB left"));
  CHECK(contains(judge({{"host a", 3, 9 * gib}, {"the cgroup of host a", 1, gib}}),
                 "1 rank needs 2.00 GiB, and the cgroup of host a has 1.00 GiB left"));
}

TEST_CASE("memory that an engine has reserved and not taken is not free for the next one") {
  zero::Config config = small_config();
  zero::ModelSpec model;
  model.unit("body").param("w", {8 << 20}).fused();
  const double bytes = engine_bytes(model, config, 1);
  zero::Runtime runtime = zero::Runtime::single();
  setenv("ZERO_AVAILABLE_GIB", std::to_string(1.5 * bytes / (1 << 30)).c_str(), 1);
  zero::Engine first(runtime, model, config);
  const std::string message = failure_of([&] { zero::Engine second(runtime, model, config); });
  unsetenv("ZERO_AVAILABLE_GIB");
  CHECK(contains(message, "cannot reserve memory for the engine"));
}

TEST_CASE("an engine that does not fit with its neighbors is refused on all ranks, with advice") {
  zero::Config config = small_config();
  zero::ModelSpec model;
  model.unit("body").param("w", {1 << 20}).fused();
  // 16 MiB of states on each rank, and the buffer of saves: one rank fits, and two do not.
  const double bytes = engine_bytes(model, config, 2);
  setenv("ZERO_AVAILABLE_GIB", std::to_string(1.5 * bytes / (1 << 30)).c_str(), 1);
  std::atomic<int> refused{0};
  const auto make = [&](int ranks) {
    return failure_of([&] {
      zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
        try {
          zero::Engine engine(runtime, model, config);
        } catch (const zero::MemoryError& error) {
          refused += contains(error.what(), "2 ranks need") &&
                     contains(error.what(), "use a higher ZeRO stage") &&
                     contains(error.what(), "planned");
          throw;
        }
      });
    });
  };
  CHECK(make(1) == "");
  CHECK(make(2) != "");
  unsetenv("ZERO_AVAILABLE_GIB");
  CHECK(refused >= 1);  // the other may get the first one's error
}

TEST_CASE("run() prints an error that LibTorch has passed on without its backtrace") {
  zero::RuntimeOptions options;
  options.abort_job = options.catch_signals = false;
  int code = 0;
  const std::string said = zero::tests::stderr_of([&] {
    code = zero::run(
        0, nullptr,
        [](zero::Runtime&) {
          throw std::runtime_error(
              "ZeroCore: parameter w is at rest\nException raised from f at g.cpp:1 "
              "(most recent call first):\nframe #0: h + 0x4");
        },
        options);
  });
  CHECK(code == zero::UsageError::code);
  CHECK(contains(said, "parameter w is at rest"));
  CHECK(!contains(said, "frame #0"));
}
