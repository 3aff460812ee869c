// Exchanges of a unit in words, for some strategies.
#include "zero/plan/route_text.h"

#include <doctest/doctest.h>

#include "tests/support/models.h"
#include "zero/zero.h"

using namespace zero::detail;

namespace {

std::string exchanges(const zero::Config& config, const PlanRank& on) {
  zero::ModelSpec model;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"})
    model.unit(name).param(name, {64, 64});
  const EnginePlan plan(model.declared(), config, on);
  std::string text;
  for (const Exchange& exchange : exchanges_of(plan, 3)) {
    text += exchange.when + ", " + exchange.op + " x " + std::to_string(exchange.times) + "\n";
    for (const std::string& route : exchange.routes) text += "  " + route + "\n";
  }
  return text;
}

zero::Config config_of(int stage, std::int64_t accumulation) {
  zero::Config config;
  config.zero_optimization.stage = stage;
  config.batch = {0, 1, accumulation};
  config.zero_optimization.param_persistence_threshold = 0;
  return config;
}

}  // namespace

TEST_CASE("exchanges in words: the stages") {
  CHECK(exchanges(config_of(0, 1), {.ranks = 1}).empty());
  CHECK(exchanges(config_of(0, 1), {.ranks = 4}) ==
        "each step, reduce x 1\n"
        "  reduce-scatter: gradient (fp32) -> gradient shard (fp32), over 4 ranks, then all-gather "
        "to all of it\n");
  CHECK(exchanges(config_of(2, 1), {.ranks = 4}) ==
        "each step, reduce x 1\n"
        "  reduce-scatter: gradient (fp32) -> gradient shard (fp32), over 4 ranks\n"
        "update, gather x 1\n"
        "  all-gather: parameter shard (fp32) -> parameters (fp32), over 4 ranks\n");
  zero::Config config = config_of(3, 2);
  config.zero_core.gradient_sync = zero::GradientSync::each;
  CHECK(exchanges(config, {.ranks = 4}) ==
        "first micro step, gather x 2\n"
        "  all-gather: parameter shard (fp32) -> parameters (fp32), over 4 ranks\n"
        "first micro step, reduce x 1\n"
        "  reduce-scatter: gradient (fp32) -> gradient shard (fp32), over 4 ranks\n"
        "last micro step, gather x 2\n"
        "  all-gather: parameter shard (fp32) -> parameters (fp32), over 4 ranks\n"
        "last micro step, reduce x 1\n"
        "  reduce-scatter: gradient (fp32) -> gradient shard (fp32), over 4 ranks, added to it\n");
}

TEST_CASE("exchanges in words: shard groups, and wire formats") {
  zero::Config config = config_of(3, 1);
  config.zero_core.shard_group_size = 2;
  const std::string hybrid = exchanges(config, {.ranks = 6});
  CHECK_MESSAGE(hybrid.find("over 2 ranks\n") != std::string::npos, hybrid);
  CHECK_MESSAGE(hybrid.find("over 3 ranks with the same shard, then all-gather to all of it") !=
                    std::string::npos,
                hybrid);
  config = config_of(3, 1);
  config.zero_core.wire.gather = "int8";
  const std::string encoded = exchanges(config, {.ranks = 4});
  CHECK_MESSAGE(encoded.find("over 4 ranks in int8 with blocks of ") != std::string::npos, encoded);
}

TEST_CASE("exchanges in words: groups of micro batches, on one node and on two") {
  zero::Config config = config_of(2, 0);
  config.bf16_enabled = true;
  config.batch = {5, 1, 0};
  config.zero_core.rank_independent = true;
  config.zero_core.rank_independent_group = 2;
  const auto has = [&](const PlanRank& on, const std::string& part) {
    const std::string text = exchanges(config, on);
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  has({.ranks = 4},
      "first micro step, reduce x 1\n"
      "  all-to-all: gradient (bf16) -> gradient shard (fp32), over 4 ranks, summands added one by "
      "one in rank order in groups of 2 micro batches\n");
  has({.ranks = 4, .node_ranks = 2},
      "last micro step, reduce x 1\n"
      "  all-to-all: gradient (bf16) -> gradient shard (fp32), over 2 ranks next to each other, "
      "then "
      "over 2 ranks of the same number in their groups, summands added one by one in rank order in "
      "groups of 2 micro batches, each summed before the second exchange, added to it\n");
}
