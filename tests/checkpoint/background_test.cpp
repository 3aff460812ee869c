// Saves that are written while training continues: the state of their own step, bounded memory,
// failures at a step border, and their fate when the engine ends.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/checkpoint/engine_support.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "zero/checkpoint/checkpoint_reader.h"
#include "zero/checkpoint/posix_files.h"

namespace {

using zero::Config;
using zero::Engine;
using zero::Runtime;
using zero::SaveError;
using zero::checkpoint::FileEvent;
using zero::checkpoint::FileOp;
using zero::tests::config_of;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::strategies;
using zero::tests::TemporaryDirectory;
using zero::tests::train_until;

// About 6 MiB of state: several pieces per rank.
constexpr toy::Dims wide{.vocabulary = 2000, .channels = 160, .blocks = 8, .batch = 1};
constexpr std::int64_t one_piece = std::int64_t{1} << 20;

Config background_config(int strategy, bool bf16, std::int64_t staging_bytes = 0) {
  Config config = config_of(strategies[static_cast<std::size_t>(strategy)], bf16);
  config.checkpoint.decoupled = true;
  config.zero_core.async_staging_bytes = staging_bytes;
  return config;
}

void with_wide_engine(int ranks, const Config& config,
                      const std::function<void(Runtime&, Engine&)>& body) {
  zero::testing::run_ranks(ranks, [&](Runtime& runtime) {
    Engine engine(runtime, toy::describe(wide), config);
    body(runtime, engine);
  });
}

// Delays every write of a file, so that training is far ahead of it.
struct SlowWrites {
  explicit SlowWrites(int milliseconds = 3) {
    zero::checkpoint::set_file_hook([milliseconds](const FileEvent& event) {
      if (event.op == FileOp::write)
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      return 0;
    });
  }
  ~SlowWrites() { zero::checkpoint::set_file_hook({}); }
};

std::int64_t checkpoint_bytes(Engine& engine) {
  std::int64_t bytes = 0;
  for (const zero::RankReport& rank : engine.report().ranks)
    for (const zero::MemoryUse& use : rank.memory)
      if (use.category == "checkpoints") {
        CHECK(use.planned == use.peak);
        bytes = std::max(bytes, use.planned);
      }
  return bytes;
}

}  // namespace

TEST_CASE("a save in the background holds the state of its own step, with little memory too") {
  for (const bool bf16 : {false, true})
    for (const int strategy : {0, 1, 3})
      for (const std::int64_t staging : {std::int64_t{0}, one_piece}) {
        const TemporaryDirectory directory;
        const std::string root = directory / "root";
        const SlowWrites slow;
        with_wide_engine(2, background_config(strategy, bf16, staging),
                         [&](Runtime& runtime, Engine& engine) {
                           engine.initialize(toy::fill);
                           const std::uint64_t saved = train_until(runtime, engine, 1, wide).digest;
                           const zero::SaveTicket ticket = engine.save_checkpoint(root);
                           train_until(runtime, engine, 4, wide);
                           CHECK(ticket.wait());
                           CHECK(ticket.wait());
                           CHECK(engine.resume(root)->step == 1);
                           CHECK(engine.digest() == saved);
                         });
      }
}

TEST_CASE("a save in the background holds no change of a visit before the next update") {
  toy::Dims visited = wide;
  visited.options_of = [](std::int64_t) {
    zero::StepOptions options;
    options.inspect = [](zero::Gradients& gradients) {
      gradients.visit([](zero::ParamElements& elements) {
        for (float& value : elements.value) value *= 1.5f;
        for (auto& [name, state] : elements.states)
          for (float& value : state) value += 0.5f;
      });
      return zero::Decision::skip;
    };
    return options;
  };
  for (const bool bf16 : {false, true})
    for (const int strategy : {0, 3}) {
      const TemporaryDirectory directory;
      const std::string root = directory / "root";
      const SlowWrites slow(40);
      with_wide_engine(2, background_config(strategy, bf16, one_piece),
                       [&](Runtime& runtime, Engine& engine) {
                         engine.initialize(toy::fill);
                         const std::uint64_t saved = train_until(runtime, engine, 1, wide).digest;
                         const zero::SaveTicket ticket = engine.save_checkpoint(root);
                         train_until(runtime, engine, 2, visited);
                         CHECK(engine.digest() != saved);
                         CHECK(ticket.wait());
                         engine.resume(root);
                         CHECK(engine.digest() == saved);
                       });
    }
}

TEST_CASE("staging is taken at start, a buffer for files when a directory is opened") {
  const TemporaryDirectory directory;
  for (const bool on : {false, true}) {
    Config config = background_config(3, true, on ? 1'500'000 : 0);
    config.checkpoint.decoupled = false;
    const std::int64_t staging = on ? 2 * one_piece : 0;
    with_wide_engine(2, config, [&](Runtime&, Engine& engine) {
      CHECK(checkpoint_bytes(engine) == staging);
      engine.open_checkpoints(directory / "any");
      CHECK(checkpoint_bytes(engine) == staging + (std::int64_t{8} << 20));
    });
  }
  Config config = background_config(3, true);
  config.checkpoint.decoupled = false;
  with_wide_engine(2, config, [&](Runtime&, Engine& engine) {
    engine.initialize(toy::fill);
    const std::string words = refusal<zero::UsageError>(
        [&] { engine.save_checkpoint(directory / "a", {.asynchronous = true}); });
    CHECK(contains(words, "checkpoint.writer.decoupled"));
    CHECK(engine.save_checkpoint(directory / "a").wait());
  });
}

TEST_CASE("the ranks find out by themselves that a save is on disk, and the next one waits") {
  const TemporaryDirectory directory;
  const std::string root = directory / "root";
  with_wide_engine(3, background_config(2, false), [&](Runtime& runtime, Engine& engine) {
    engine.initialize(toy::fill);
    engine.save_checkpoint(root);
    const auto on_disk = [&] { return std::filesystem::exists(root + "/step-0") ? 1 : 0; };
    for (int step = 1; runtime.sum(on_disk()) < 3; ++step) train_until(runtime, engine, step, wide);
    runtime.sum(0);
    engine.save_checkpoint(root, {.tag = "second"});
    engine.save_checkpoint(root, {.tag = "third", .asynchronous = false});
    CHECK(engine.resume(root)->tag == "third");
    // The engine's destructor waits for the last save.
    engine.save_checkpoint(root, {.tag = "fourth"});
  });
  for (const char* tag : {"step-0", "second", "third", "fourth"})
    zero::checkpoint::CheckpointReader(root + "/" + tag).verify();
}

TEST_CASE("a failure in the background surfaces at a step border, on all ranks") {
  for (const bool goes_on : {false, true})
    for (const FileOp op : {FileOp::create, FileOp::write, FileOp::rename}) {
      const TemporaryDirectory directory;
      const std::string root = directory / "root";
      Config config = background_config(3, true);
      config.zero_core.on_save_error = goes_on ? "continue" : "stop";
      with_wide_engine(2, config, [&](Runtime& runtime, Engine& engine) {
        engine.initialize(toy::fill);
        engine.open_checkpoints(root);
        runtime.sum(0);
        if (runtime.is_root())
          zero::checkpoint::set_file_hook([op](const FileEvent& event) {
            // Fails one rank's file, or the commit.
            const bool mine = contains(event.path, "00002-of") || event.op == FileOp::rename;
            return event.op == op && mine ? ENOSPC : 0;
          });
        runtime.sum(0);
        const zero::SaveTicket ticket = engine.save_checkpoint(root, {.tag = "lost"});
        std::string words;
        std::int64_t step = 0;
        while (words.empty() && step < (goes_on ? 20 : 100'000))
          words = refusal<SaveError>([&] { train_until(runtime, engine, ++step, wide); });
        CHECK(engine.step_count() == step);
        runtime.sum(0);
        if (runtime.is_root()) zero::checkpoint::set_file_hook({});
        runtime.sum(0);
        if (goes_on) {
          CHECK(words == "");
          CHECK(!ticket.wait());
        } else {
          CHECK(contains(words, "No space left on device"));
          CHECK(contains(refusal<SaveError>([&] { ticket.wait(); }), "No space left on device"));
        }
        CHECK(engine.save_checkpoint(root, {.tag = "kept"}).wait());
      });
      CHECK(!std::filesystem::exists(root + "/lost"));
      zero::checkpoint::CheckpointReader(root + "/kept").verify();
    }
}

TEST_CASE("on_save_error: a save that fails at once") {
  const TemporaryDirectory directory;
  for (const bool goes_on : {false, true}) {
    const std::string root = directory / (goes_on ? "continue" : "stop");
    Config config = config_of(strategies[1], false);
    config.zero_core.on_save_error = goes_on ? "continue" : "stop";
    zero::tests::with_engine(2, config, [&](Runtime& runtime, Engine& engine) {
      engine.initialize(toy::fill);
      CHECK(engine.save_checkpoint(root, {.tag = "a"}).wait());
      // Refused because the tag is taken.
      const auto again = [&] { return engine.save_checkpoint(root, {.tag = "a"}).wait(); };
      if (goes_on)
        CHECK(!again());
      else
        CHECK(contains(refusal<SaveError>([&] { again(); }), "has a already"));
      train_until(runtime, engine, 1);
      CHECK(engine.save_checkpoint(root, {.tag = "a", .replace = true}).wait());
      CHECK(zero::list_checkpoints(root).at(0).step == 1);
      CHECK(engine.save_checkpoint(root, {.tag = "b"}).wait());
      CHECK(engine.predicted_save_seconds() > 0);
    });
  }
}
