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
