// Checkpoints go from every hybrid strategy to every stage and number of ranks, and back.
#include <doctest/doctest.h>

#include "tests/checkpoint/engine_support.h"
#include "tests/support/hybrid_rows.h"
#include "tests/support/temporary_directory.h"

namespace {

using zero::Config;
using zero::Engine;
using zero::Runtime;
using zero::tests::config_of;
using zero::tests::strategies;
using zero::tests::TemporaryDirectory;
using zero::tests::train_until;
using zero::tests::with_engine;

constexpr int ranks = 4, group = 2, saved_step = 3, last_step = 5;

struct Run {
  std::uint64_t digest = 0;  // at saved_step
  toy::Trace rest;           // from there to last_step

  bool operator==(const Run&) const = default;
};

Run save(const std::string& path, const Config& config) {
  Run run;
  with_engine(ranks, config, [&](Runtime& runtime, Engine& engine) {
    engine.initialize(toy::fill);
    const std::uint64_t digest = train_until(runtime, engine, saved_step).digest;
    engine.save_checkpoint(path, {"saved"}).wait();
    const toy::Trace rest = train_until(runtime, engine, last_step);
    if (runtime.is_root()) run = {digest, rest};
  });
  return run;
}

Run load(const std::string& path, int rank_count, const Config& config) {
  Run run;
  with_engine(rank_count, config, [&](Runtime& runtime, Engine& engine) {
    REQUIRE(engine.resume(path));
    const std::uint64_t digest = engine.digest();
    const toy::Trace rest =
        rank_count == ranks ? train_until(runtime, engine, last_step) : toy::Trace{};
    if (runtime.is_root()) run = {digest, rest};
  });
  return run;
}

void check_moves(const Config& base) {
  const TemporaryDirectory directory;
  const Config plain = hybrid::with_sums_of(base, group);
  const Run expected = save(directory / "plain", plain);
  for (const hybrid::Row& row : hybrid::rows) {
    CAPTURE(std::string(row.name));
    const Config config = hybrid::in_groups(base, row, group);
    const std::string own = directory / row.name;
    CHECK(save(own, config) == expected);
    CHECK(load(directory / "plain", ranks, config) == expected);
    CHECK(load(own, ranks, plain) == expected);
    CHECK(load(own, ranks, config) == expected);
    for (const hybrid::Row& other : hybrid::rows)
      CHECK(load(own, ranks, hybrid::in_groups(base, other, group)) == expected);
    CHECK(load(own, ranks, hybrid::in_groups(base, row, ranks)).digest == expected.digest);
    for (const int count : {1, 3}) CHECK(load(own, count, base).digest == expected.digest);
    Config six = hybrid::in_groups(base, row, 3);
    CHECK(load(own, 6, six).digest == expected.digest);
  }
}

}  // namespace

TEST_CASE("hybrid strategies: saved and loaded by any other, in fp32 and bf16") {
  for (const bool bf16 : {false, true}) check_moves(config_of(strategies[3], bf16));
}

TEST_CASE("hybrid strategies: states that only some parameters have") {
  Config config = config_of(strategies[3], true);
  config.optimizer = zero::optim::default_options("SGD");
  config.optimizer.learning_rate = 0.01;
  config.zero_core.param_groups["biases"].momentum = 0.9;
  check_moves(config);
}
