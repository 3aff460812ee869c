#include "config_schemas/keys.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "config_schemas/values.h"

using namespace zero;
using namespace zero::config_schemas;

TEST_CASE("the table is well formed") {
  std::set<std::string> paths;
  for (const Key& key : keys()) {
    CAPTURE(std::string(key.path));
    CHECK(paths.emplace(key.path).second);
    CHECK_FALSE(key.meaning.empty());
    const bool acts = key.status == Status::honoured && key.type != Type::section;
    CHECK((key.target != nullptr) == acts);
    if (key.type == Type::section) CHECK(key.status == Status::honoured);
    CHECK((key.type == Type::choice) == !key.choices.empty());
    CHECK((key.status == Status::honoured) == key.reason.empty());
    if (key.status == Status::replaced) CHECK(find_key(key.reason) != nullptr);
    if (acts) CHECK(key.initial.empty());
    if (!key.switched_by.empty()) {
      const Key* by = find_key(key.switched_by);
      REQUIRE(by != nullptr);
      CHECK(by->type == Type::boolean);
    }
    const bool nothing = key.nullable && key.initial == "null";
    if (key.type == Type::boolean && !key.initial.empty() && !nothing)
      CHECK((key.initial == "true" || key.initial == "false"));
    if (key.type == Type::choice && !key.initial.empty() && !nothing)
      CHECK(std::ranges::find(key.choices, key.initial) != key.choices.end());
    const auto section = section_of(key.path);
    if (section.empty()) continue;
    const Key* parent = find_key(section);
    REQUIRE(parent != nullptr);
    CHECK(parent->type == Type::section);
  }
}

TEST_CASE("both spellings name one row; dots and stars in a name reach nothing") {
  const Key* key = find_key("zero_optimization.stage3_max_live_parameters");
  REQUIRE(key != nullptr);
  CHECK(find_key("zero_optimization.max_live_parameters") == key);
  CHECK(find_key("zero_optimization", "max_live_parameters") == key);
  CHECK(find_key("", "optimizer.type") == nullptr);
  CHECK(find_key("", "*") == nullptr);
  CHECK(find_key("", "") == nullptr);
  CHECK(find_key("zero_core.param_groups", "norms")->path == "zero_core.param_groups.*");
}

TEST_CASE("defaults are those of the structs") {
  Config config;
  const auto shown = [&](const char* path) { return show_value(*find_key(path), "", config); };
  CHECK(shown("zero_optimization.stage") == "0");
  CHECK(shown("zero_optimization.reduce_bucket_size") == "500000000");
  CHECK(shown("zero_optimization.max_live_parameters") == not_set);
  CHECK(shown("optimizer.params.betas") == "[0.9, 0.999]");
  CHECK(shown("gradient_clipping") == "1");
  CHECK(shown("zero_core.reduce_group_size") == "node");
  CHECK(shown("zero_core.gradient_sync") == not_set);
  CHECK(shown("train_batch_size") == not_set);
}

TEST_CASE("the nearest key") {
  const struct {
    const char *path, *nearest;
  } cases[] = {
      {"train_batchsize", "train_batch_size"},
      {"gradient_acumulation_steps", "gradient_accumulation_steps"},
      {"zero_optimisation", "zero_optimization"},
      {"Zero_Optimization", "zero_optimization"},
      {"stage", "zero_optimization.stage"},
      {"zero_optimization.stagee", "zero_optimization.stage"},
      {"zero_optimization.stage3_max_live_paramters",
       "zero_optimization.stage3_max_live_parameters"},
      {"zero_optimization.max_live_paramters", "zero_optimization.max_live_parameters"},
      {"zero_optimization.bucket_size", "zero_optimization.allgather_bucket_size"},
      {"zero_optimization.overlap", "zero_optimization.overlap_comm"},
      {"optimizer.momentum", "optimizer.params.momentum"},
      {"optimizer.params.beta", "optimizer.params.betas"},
      {"optimizer.params.bteas", "optimizer.params.betas"},
      {"scheduler.params.num_warmup_steps", "scheduler.params.warmup_num_steps"},
      {"bfloat_16", "bfloat16"},
      {"fp16.loss_scal", "fp16.loss_scale"},
      {"bf16.enable", "bf16.enabled"},
      {"zero_core.param_groups.norms.lr_scal", "zero_core.param_groups.NAME.lr_scale"},
      {"zero_core.param_groups.norms.weight_dcay", "zero_core.param_groups.NAME.weight_decay"},
      {"reshard_after_forward", "zero_core.reshard_after_forward"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.path);
    CHECK(nearest_key(c.path) == c.nearest);
  }
  CHECK_FALSE(nearest_key("").empty());
  CHECK_FALSE(nearest_key(std::string(100'000, '.')).empty());
}
