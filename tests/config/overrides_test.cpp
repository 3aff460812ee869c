#include "config_schemas/overrides.h"

#include <doctest/doctest.h>

#include "tests/config/config_support.h"

using namespace zero;
using zero::tests::has;
using zero::tests::parse;
using zero::tests::refusal;

TEST_CASE("overrides replace and add values") {
  const Config config =
      parse(R"({"zero_optimization": {"stage": 1, "stage3_max_live_parameters": 5}, "bf16": null})",
            {{"zero_optimization.stage", "3"},
             {"zero_optimization.max_live_parameters", "7e3"},
             {"optimizer.type", "SGD"},
             {"optimizer.params.momentum", "0.9"},
             {"bf16.enabled", "true"},
             {"zero_core.gradient_sync", "each"},
             {"zero_core.reduce_group_size", "\"node\""},
             {"zero_core.param_groups.norms.weight_decay", "0"},
             {"seed", "7"}});
  CHECK(config.zero_optimization.stage == 3);
  CHECK(config.zero_optimization.max_live_parameters == 7000);
  CHECK(config.optimizer.type == "SGD");
  CHECK(config.optimizer.momentum == 0.9);
  CHECK(config.bf16_enabled);
  CHECK(config.zero_core.gradient_sync == GradientSync::each);
  CHECK(config.zero_core.param_groups.at("norms").weight_decay == 0.0);
  CHECK(config.seed == 7);
}

TEST_CASE("an override repairs a wrong value of the file") {
  CHECK(parse(R"({"train_batch_size": "auto"})", {{"train_batch_size", "8"}})
            .batch.train_batch_size == 8);
  CHECK(
      parse(R"({"train_batch_size": 8})", {{"train_batch_size", "null"}}).batch.train_batch_size ==
      0);
}

TEST_CASE("a whole section as an object") {
  const Config config =
      parse(R"({"optimizer": {"type": "Adam", "params": {"lr": 1}}})",
            {{"optimizer.params", R"({"eps": 1e-3})"}, {"optimizer.params.lr", "2"}});
  CHECK(config.optimizer.learning_rate == 2.0);
  CHECK(config.optimizer.epsilon == 1e-3);
}

TEST_CASE("bad overrides") {
  const struct {
    const char *path, *value, *message;
  } cases[] = {
      {"zero_optimization.stge", "1",
       "override: zero_optimization.stge: unknown key; nearest known key: zero_optimization.stage"},
      {"zero_optimisation.stage", "1",
       "override: zero_optimisation.stage: unknown key; nearest known key: "
       "zero_optimization.stage"},
      {"zero_optimization.stage.x", "1", "override: zero_optimization.stage.x: unknown key"},
      {"", "1", "override: : unknown key"},
      {".", "1", "override: .: unknown key"},
      {"optimizer..lr", "1",
       "override: optimizer..lr: unknown key; its place is optimizer.params.lr"},
      {"zero_optimization.", "1", "override: zero_optimization.: unknown key"},
      {"zero_optimization.stage", "4",
       "override: zero_optimization.stage: 4 is out of range; allowed: an integer from 0 to 3"},
      {"zero_optimization.stage", "", "override: zero_optimization.stage: \"\" is not an integer"},
      {"zero_optimization.stage", "{\"a\": 1", "is not an integer"},
      {"zero_optimization", "3", "override: zero_optimization: must be an object"},
      {"optimizer.params", R"({"lr": 1, "lr": 2})",
       "override: optimizer.params: duplicate key \"lr\""},
      {"optimizer.params", R"({"rl": 1})", "override: optimizer.params.rl: unknown key"},
      {"zero_core.param_groups.a b.lr_scale", "1",
       "override: zero_core.param_groups.a b: is no group name"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.path);
    CHECK(has(refusal("{}", {{c.path, c.value}}), c.message));
  }
}

TEST_CASE("an override into something that is no object leaves the file's error") {
  CHECK(refusal(R"({"zero_optimization": 5})", {{"zero_optimization.stage", "1"}}) ==
        "ds.json:1:23: zero_optimization: must be an object { ... }");
  CHECK(has(refusal("[]", {{"seed", "1"}}), "must be a JSON object"));
}
