// Saves and loads wait for one slow rank as long as it makes progress, and no longer.
#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "tests/checkpoint/engine_support.h"
#include "tests/support/refusal.h"
#include "tests/support/stderr_of.h"
#include "tests/support/temporary_directory.h"
#include "zero/checkpoint/posix_files.h"

namespace {

using zero::Engine;
using zero::Runtime;
using zero::StalledError;
using zero::checkpoint::FileEvent;
using zero::checkpoint::FileOp;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::stderr_of;
using zero::tests::TemporaryDirectory;

constexpr double limit = 0.6;
// For ranks that must not reach it, on a machine that is slow itself.
constexpr double generous_limit = 2;
constexpr std::chrono::milliseconds below_it{400};

// Makes calls on the file of the last of three ranks take this long.
void slow_down(std::chrono::milliseconds time, const std::function<bool(FileOp)>& which) {
  zero::checkpoint::set_file_hook([=](const FileEvent& event) {
    if (contains(event.path, "00003-of") && which(event.op)) std::this_thread::sleep_for(time);
    return 0;
  });
}

struct Words {
  std::string printed, thrown;
};

// Returns the messages of three ranks with a checkpoint "first" that make the call while files are
// slow.
Words words_of(bool in_background, const std::function<void()>& slow,
               const std::function<void(Engine&, const std::string& root)>& call,
               double seconds = limit) {
  const TemporaryDirectory directory;
  zero::Config config = zero::tests::config_of(zero::tests::strategies[3], false);
  config.zero_core.time_limit_seconds = seconds;
  config.checkpoint.decoupled = in_background;
  Words words;
  words.printed = stderr_of([&] {
    words.thrown = refusal<StalledError>([&] {
      zero::tests::with_engine(3, config, [&](Runtime& runtime, Engine& engine) {
        engine.initialize(toy::fill);
        engine.save_checkpoint(directory / "root", {.tag = "first"}).wait();
        runtime.sum(0);
        if (runtime.is_root()) slow();
        runtime.sum(0);
        call(engine, directory / "root");
      });
    });
  });
  zero::checkpoint::set_file_hook({});
  return words;
}

void save(Engine& engine, const std::string& root) {
  const bool saved = engine.save_checkpoint(root, {.tag = "second"}).wait();
  CHECK(saved);
}

void load(Engine& engine, const std::string& root) {
  const std::string tag = engine.resume(root)->tag;
  CHECK(tag == "first");
}

}  // namespace

TEST_CASE("a slow rank that gets on is waited for beyond the time limit, and spoken of") {
  for (const bool in_background : {false, true}) {
    const Words words = words_of(
        in_background, [] { slow_down(below_it, [](FileOp) { return true; }); }, save,
        generous_limit);
    CHECK(words.thrown == "");
    CHECK(contains(words.printed, "zero: checkpoint: the writing of second waits for rank 2: "));
    CHECK(contains(words.printed, " KiB of "));
  }
}

TEST_CASE("a rank that does not get on in a save ends it within the time limit") {
  for (const bool in_background : {false, true}) {
    const Words words = words_of(
        in_background,
        [] {
          slow_down(std::chrono::milliseconds(2500), [](FileOp op) { return op == FileOp::sync; });
        },
        save);
    CHECK(contains(words.thrown,
                   "the writing of second has made no progress for 600 ms: rank 2 is at "));
  }
}

TEST_CASE("an update that a save in the background holds up waits within the time limit") {
  constexpr toy::Dims wide{.vocabulary = 2000, .channels = 160, .blocks = 8, .batch = 1};
  const TemporaryDirectory directory;
  zero::Config config = zero::tests::config_of(zero::tests::strategies[3], false);
  config.zero_core.time_limit_seconds = limit;
  config.zero_core.async_staging_bytes = std::int64_t{1} << 20;
  const std::string thrown = refusal<StalledError>([&] {
    zero::testing::run_ranks(1, [&](Runtime& runtime) {
      Engine engine(runtime, toy::describe(wide), config);
      engine.initialize(toy::fill);
      zero::checkpoint::set_file_hook([](const FileEvent& event) {
        if (event.op == FileOp::write && contains(event.path, "shard-"))
          std::this_thread::sleep_for(std::chrono::milliseconds(2500));
        return 0;
      });
      engine.save_checkpoint(directory / "root", {.asynchronous = true});
      zero::tests::train_until(runtime, engine, 1, wide);
    });
  });
  zero::checkpoint::set_file_hook({});
  CHECK(contains(thrown, "rank 0: an update waits for the save of step-0 in the background"));
  CHECK(contains(thrown, "no progress for 600 ms"));
}

TEST_CASE("a rank that does not get on in a load ends it within the time limit") {
  const Words words = words_of(
      false,
      [] {
        slow_down(std::chrono::milliseconds(2500), [](FileOp op) { return op == FileOp::read; });
      },
      load);
  CHECK(contains(words.thrown, "the reading of first has made no progress for 600 ms: rank 2 is"));
}

TEST_CASE("an export is waited for as long as it gets on, and no longer") {
  const auto slow_model = [](std::chrono::milliseconds time, bool at_syncs_alone) {
    zero::checkpoint::set_file_hook([=](const FileEvent& event) {
      if (contains(event.path, "model") && (!at_syncs_alone || event.op == FileOp::sync))
        std::this_thread::sleep_for(time);
      return 0;
    });
  };
  const auto export_model = [](Engine& engine, const std::string& root) {
    engine.export_model(root + "/model");
  };
  const Words slow = words_of(
      false, [&] { slow_model(below_it, false); }, export_model, generous_limit);
  CHECK(slow.thrown == "");
  CHECK(contains(slow.printed, "/model waits for rank 0: "));
  const Words stuck = words_of(
      false, [&] { slow_model(std::chrono::milliseconds(2500), true); }, export_model);
  CHECK(contains(stuck.thrown, "/model has made no progress for 600 ms: rank 0 is at "));
}
