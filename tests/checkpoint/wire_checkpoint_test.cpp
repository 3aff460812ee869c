// Checkpoints hold the slices that ranks own, not gathered copies, so they load in runs with and
// without wire formats, although the layouts differ.
#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/checkpoint/engine_support.h"
#include "tests/support/stderr_of.h"
#include "tests/support/temporary_directory.h"
#include "zero/checkpoint/format/manifest.h"

namespace {

using namespace zero::tests;
using zero::Config;
using zero::Engine;
using zero::Runtime;

Config gathered_as(int stage, bool bf16, const char* format, std::int64_t block = 256) {
  Config config = config_of(strategies[static_cast<std::size_t>(stage)], bf16);
  config.zero_core.wire.gather = format;
  config.zero_core.wire.block_size = block;
  return config;
}

}  // namespace

TEST_CASE("checkpoints move between wire formats, stages and numbers of ranks") {
  for (const bool bf16 : {false, true}) {
    CAPTURE(bf16);
    const TemporaryDirectory directory;
    std::uint64_t saved = 0;
    toy::Trace rest;
    with_engine(2, gathered_as(2, bf16, "int8"), [&](Runtime& runtime, Engine& engine) {
      engine.initialize(toy::fill);
      const toy::Trace trace = train_until(runtime, engine, 3);
      engine.save_checkpoint(directory / "saved", {"saved"}).wait();
      const toy::Trace after = train_until(runtime, engine, 5);
      if (runtime.is_root()) saved = trace.digest, rest = after;
    });
    for (const int stage : {0, 1, 2, 3})
      for (const int ranks : {1, 2, 3})
        for (const char* format : {"none", "int8", "mxfp8"}) {
          if (stage == 0 && format != std::string("none")) continue;
          CAPTURE(stage);
          CAPTURE(ranks);
          CAPTURE(std::string(format));
          const bool same = ranks == 2 && format == std::string("int8") && stage >= 2;
          with_engine(ranks, gathered_as(stage, bf16, format, same ? 256 : 1024),
                      [&](Runtime& runtime, Engine& engine) {
                        REQUIRE(engine.resume(directory / "saved"));
                        CHECK(engine.digest() == saved);
                        if (!same) return;
                        const toy::Trace trace = train_until(runtime, engine, 5);
                        if (runtime.is_root()) CHECK(trace == rest);
                      });
        }
  }
}

namespace {

Config fed_back(int stage, const char* format, bool two_hops = false) {
  Config config = config_of(strategies[static_cast<std::size_t>(stage)], false);
  config.zero_core.wire.reduce = two_hops ? "none" : format;
  config.zero_optimization.quantized_gradients = two_hops;
  config.zero_core.reduce_group_size = 2;
  config.zero_core.wire.error_feedback.err_beta = 0.8;
  return config;
}

struct Saved {
  toy::Trace rest;  // of the run that continued
  std::uint64_t digest = 0;
};

// Trains for three steps, saves, and continues to the fifth.
Saved save_at_three(int ranks, const Config& config, const std::string& directory,
                    bool asynchronous) {
  Saved saved;
  with_engine(ranks, config, [&](Runtime& runtime, Engine& engine) {
    engine.initialize(toy::fill);
    const toy::Trace before = train_until(runtime, engine, 3);
    const auto save = engine.save_checkpoint(directory, {.asynchronous = asynchronous});
    const toy::Trace rest = train_until(runtime, engine, 5);
    save.wait();
    if (runtime.is_root()) saved = {rest, before.digest};
  });
  return saved;
}

}  // namespace

TEST_CASE("residues of error feedback go on from a checkpoint at any stage") {
  for (const bool two_hops : {false, true})
    for (const bool asynchronous : {false, true}) {
      CAPTURE(two_hops);
      CAPTURE(asynchronous);
      const TemporaryDirectory directory;
      Config config = fed_back(3, "int4", two_hops);
      config.checkpoint.decoupled = asynchronous;
      const Saved saved = save_at_three(4, config, directory / "saved", asynchronous);
      for (const int stage : {0, 2, 3}) {
        if (two_hops && stage != 3) continue;
        CAPTURE(stage);
        Config other = fed_back(stage, "int4", two_hops);
        other.zero_optimization.reduce_bucket_size = 300;
        with_engine(4, other, [&](Runtime& runtime, Engine& engine) {
          // Twice, since the second time the residues of undone steps must be gone.
          for (int time = 0; time < 2; ++time) {
            REQUIRE(engine.resume(directory / "saved"));
            const toy::Trace trace = train_until(runtime, engine, 5);
            if (runtime.is_root()) CHECK(trace == saved.rest);
          }
        });
      }
    }
}

TEST_CASE("residues of sums inside groups go on with these sums alone") {
  const TemporaryDirectory directory;
  const auto in_groups = [](int stage, zero::GradientSync sync) {
    Config config = fed_back(stage, "int4");
    config.batch.gradient_accumulation_steps = 2;
    config.zero_core.gradient_sync = sync;
    return config;
  };
  const Saved saved =
      save_at_three(4, in_groups(2, zero::GradientSync::inner), directory / "saved", false);
  const auto resume = [&](const Config& config) {
    return stderr_of([&] {
      with_engine(4, config, [&](Runtime& runtime, Engine& engine) {
        REQUIRE(engine.resume(directory / "saved"));
        const toy::Trace trace = train_until(runtime, engine, 5);
        const bool same = config.zero_core.gradient_sync == zero::GradientSync::inner;
        if (runtime.is_root()) CHECK((trace == saved.rest) == same);
      });
    });
  };
  const std::string notice = "has no residues of error feedback";
  CHECK(resume(in_groups(3, zero::GradientSync::inner)).find(notice) == std::string::npos);
  CHECK(resume(in_groups(3, zero::GradientSync::each)).find(notice) != std::string::npos);
}

TEST_CASE("residues that a checkpoint lacks or has for other exchanges start from zero") {
  const TemporaryDirectory directory;
  const Saved saved = save_at_three(2, fed_back(3, "int4"), directory / "saved", false);
  Config plain = fed_back(3, "int4");
  plain.zero_core.wire.error_feedback = {};
  save_at_three(2, plain, directory / "plain", false);
  const auto lines = [&](const char* from, int ranks, const Config& config) {
    std::uint64_t digest = 0;
    const std::string text = stderr_of([&] {
      with_engine(ranks, config, [&](Runtime& runtime, Engine& engine) {
        REQUIRE(engine.resume(directory / from));
        if (const std::uint64_t own = engine.digest(); runtime.is_root()) digest = own;
      });
    });
    if (from == std::string("saved")) CHECK(digest == saved.digest);
    const std::string notice = "has no residues of error feedback for ";
    const std::size_t at = text.find(notice);
    CHECK(text.find(notice, at + 1) == std::string::npos);
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  CHECK(lines("saved", 2, fed_back(2, "int4")).empty());
  CHECK(lines("saved", 3, fed_back(3, "int4")) ==
        "has no residues of error feedback for int4 in blocks of 256 over 3 ranks in groups of 3: "
        "they start from zero");
  CHECK(lines("saved", 2, fed_back(3, "int8")).find("int8") != std::string::npos);
  CHECK(!lines("plain", 2, fed_back(3, "int4")).empty());
  CHECK(lines("saved", 2, plain).empty());
}

namespace {

// Resumes on four ranks, continues to the fifth step, and returns the notice about residues.
std::string notice_on_resuming(const Config& config, const std::string& from, toy::Trace& rest,
                               const std::string& save_again = "") {
  const std::string text = stderr_of([&] {
    with_engine(4, config, [&](Runtime& runtime, Engine& engine) {
      REQUIRE(engine.resume(from));
      if (!save_again.empty()) engine.save_checkpoint(save_again).wait();
      const toy::Trace trace = train_until(runtime, engine, 5);
      if (runtime.is_root()) rest = trace;
    });
  });
  const std::size_t at = text.find("residues of error feedback");
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

Config keeping_small(Config config, std::int64_t threshold) {
  config.zero_optimization.param_persistence_threshold = threshold;
  return config;
}

// Schedules and groups in which residues belong to other sums.
std::vector<Config> ways_to_feed_back() {
  std::vector<Config> ways{fed_back(3, "int4"), fed_back(3, "mxfp8"), fed_back(3, "int4", true)};
  for (Config& way : ways) way.zero_core.wire.block_size = 32;
  ways.push_back(ways.back());
  ways.back().batch.gradient_accumulation_steps = 2;
  ways.back().zero_core.gradient_sync = zero::GradientSync::inner;
  for (const bool over_all : {false, true}) {
    ways.push_back(ways[0]);
    ways.back().zero_core.shard_group_size = 2;
    ways.back().zero_core.optimizer_over_all_ranks = over_all;
  }
  return ways;
}

}  // namespace

TEST_CASE("residues are kept if small parameters stay gathered from now on, or no longer do") {
  int number = 0;
  for (const Config& way : ways_to_feed_back()) {
    CAPTURE(number++);
    const TemporaryDirectory directory;
    const Saved saved = save_at_three(4, way, directory / "saved", false);
    const Saved kept = save_at_three(4, keeping_small(way, 20), directory / "kept", false);
    CHECK(kept.rest == saved.rest);
    for (const char* from : {"saved", "kept"})
      for (const std::int64_t threshold : {0, 8, 20}) {
        CAPTURE(std::string(from));
        CAPTURE(threshold);
        toy::Trace rest;
        CHECK(notice_on_resuming(keeping_small(way, threshold), directory / from, rest).empty());
        CHECK(rest == saved.rest);
      }
  }
}

TEST_CASE("residues are kept if other parameters are encoded, and at a stage without shards") {
  const TemporaryDirectory directory;
  const Config config = keeping_small(fed_back(3, "int4"), 20);
  const Saved saved = save_at_three(4, config, directory / "saved", false);
  toy::Trace rest;
  CHECK(notice_on_resuming(keeping_small(fed_back(2, "int4"), 20), directory / "saved", rest)
            .empty());
  CHECK(rest == saved.rest);
  Config gathers = config;
  gathers.zero_core.wire.gather = "int8";
  CHECK(notice_on_resuming(gathers, directory / "saved", rest, directory / "again").empty());
  CHECK(rest != saved.rest);
  CHECK(notice_on_resuming(config, directory / "again", rest).empty());
  CHECK(rest == saved.rest);
}

TEST_CASE(
    "residues whose layout an older checkpoint does not describe start from zero, with a notice") {
  namespace checkpoint = zero::checkpoint;
  const TemporaryDirectory directory;
  const Config config = fed_back(3, "int4");
  const Saved saved = save_at_three(4, config, directory / "saved", false);
  const std::string folder = directory / "saved/step-3";
  std::ifstream in(folder + "/manifest.json");
  const std::string saved_text{std::istreambuf_iterator<char>(in), {}};
  checkpoint::Manifest manifest = checkpoint::parse_manifest(folder, saved_text);
  for (checkpoint::ManifestParameter& parameter : manifest.parameters)
    parameter.residues_at.clear();
  const std::string text = checkpoint::format_manifest(manifest);
  std::ofstream(folder + "/manifest.json") << text;
  std::ofstream(folder + "/manifest.xxh3") << checkpoint::format_manifest_digest(text);
  toy::Trace rest;
  CHECK(notice_on_resuming(config, directory / "saved", rest).empty());
  CHECK(rest == saved.rest);
  CHECK(
      notice_on_resuming(keeping_small(config, 20), directory / "saved", rest) ==
      "residues of error feedback for another layout of the parameters, and does not say how they "
      "lie there: they start from zero");
  CHECK(rest != saved.rest);
}

TEST_CASE("residues of two hops in one reduction are not those of two reductions") {
  const TemporaryDirectory directory;
  Config config = fed_back(3, "int4", true);
  config.batch.gradient_accumulation_steps = 2;
  config.zero_core.gradient_sync = zero::GradientSync::each;
  save_at_three(4, config, directory / "saved", false);
  config.zero_core.gradient_sync = zero::GradientSync::inner;
  toy::Trace rest;
  CHECK(notice_on_resuming(config, directory / "saved", rest) ==
        "residues of error feedback for int4 in blocks of 256 over 4 ranks in groups of 4 in two "
        "hops, with int4 in blocks of 256 inside 2 of them, the second once per step: they start "
        "from zero");
}
