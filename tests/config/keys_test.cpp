#include "config_schemas/keys.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "config_schemas/values.h"

using namespace zero;
using namespace zero::config_schemas;

TEST_CASE("the table is well formed") {
  std::set<std::string> paths;
  for (const Key& key : keys()) {
    CAPTURE(key.path);
    CHECK(paths.emplace(key.path).second);
    CHECK_FALSE(key.meaning.empty());
    const bool acts = key.status == Status::honored && key.type != Type::section;
    CHECK((key.of != nullptr) == acts);
    if (key.type == Type::section) CHECK(key.status == Status::honored);
    CHECK((key.type == Type::choice) == !key.choices.empty());
    CHECK((key.status == Status::honored) == key.reason.empty());
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

TEST_CASE("no number is without a range, and no default lies outside of its own") {
  for (const Key& key : keys()) {
    const bool numeric = key.type == Type::integer || key.type == Type::number ||
                         key.type == Type::pair || key.type == Type::group_size ||
                         key.type == Type::group_sizes || key.type == Type::integers;
    if (!numeric) continue;
    CAPTURE(key.path);
    CHECK(std::isfinite(key.range.low));
    CHECK(std::isfinite(key.range.high));
    CHECK(key.range.low < key.range.high);
    const std::string initial = show_default(key);
    if (key.type == Type::pair || initial == not_set || initial == "null" || initial == "node")
      continue;
    const double value = std::stod(initial);
    CHECK(value >= key.range.low);
    CHECK(value <= key.range.high);
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

TEST_CASE("an unknown key's error names the intended one") {
  using Kind = Guess::Kind;
  const struct {
    const char *path, *nearest;
    Kind kind = Kind::slip;
  } cases[] = {
      {"train_batchsize", "train_batch_size"},
      {"gradient_acumulation_steps", "gradient_accumulation_steps"},
      {"zero_optimisation", "zero_optimization"},
      {"Zero_Optimization", "zero_optimization"},
      {"stage", "zero_optimization.stage", Kind::elsewhere},
      {"zero_optimization.stagee", "zero_optimization.stage"},
      {"zero_optimization.stage3_max_live_paramters",
       "zero_optimization.stage3_max_live_parameters"},
      {"zero_optimization.max_live_paramters", "zero_optimization.max_live_parameters"},
      {"zero_optimization.bucket_size", "zero_optimization.reduce_bucket_size", Kind::part},
      {"zero_optimization.overlap", "zero_optimization.overlap_comm", Kind::part},
      {"zero_optimization.max_live", "zero_optimization.max_live_parameters", Kind::part},
      {"batch_size", "train_batch_size", Kind::part},
      {"gradient_clip", "gradient_clipping", Kind::part},
      {"optimizer.momentum", "optimizer.params.momentum", Kind::elsewhere},
      {"offload_optimizer", "zero_optimization.offload_optimizer", Kind::elsewhere},
      {"zero_optimization.gradient_clipping", "gradient_clipping", Kind::elsewhere},
      {"checkpoint.partition_activations", "activation_checkpointing.partition_activations",
       Kind::elsewhere},
      {"zero_optimization.device", "zero_optimization.offload_optimizer.device", Kind::elsewhere},
      {"stage3_max_live_paramters", "zero_optimization.stage3_max_live_parameters", Kind::similar},
      {"optimizer.params.beta", "optimizer.params.betas"},
      {"optimizer.params.bteas", "optimizer.params.betas"},
      {"scheduler.params.num_warmup_steps", "scheduler.params.warmup_num_steps"},
      {"bfloat_16", "bfloat16"},
      {"fp16.loss_scal", "fp16.loss_scale"},
      {"bf16.enable", "bf16.enabled"},
      {"zero_core.param_groups.norms.lr_scal", "zero_core.param_groups.NAME.lr_scale"},
      {"zero_core.param_groups.norms.weight_dcay", "zero_core.param_groups.NAME.weight_decay"},
      {"reshard_after_forward", "zero_core.reshard_after_forward", Kind::elsewhere},
  };
  for (const auto& c : cases) {
    CAPTURE(c.path);
    const Guess guess = guess_key(c.path);
    CHECK(guess.path == c.nearest);
    CHECK(guess.kind == c.kind);
    REQUIRE(guess.key != nullptr);
  }
}

TEST_CASE("no key is proposed for a word of its own") {
  const std::string noise(100'000, '.');
  for (const std::string path : {"msamp",
                                 "msamp.opt_level",
                                 "opt_level",
                                 "fp16.opt_leveling",
                                 "checkpointing",
                                 "monitor",
                                 "data",
                                 "dataloader",
                                 "device",
                                 "block_size",
                                 "enabled",
                                 "type",
                                 "log",
                                 "backend",
                                 "checkpoint.tag_validation_enabled",
                                 "flops_profiler.warm_up",
                                 "learning_rate",
                                 "model",
                                 "distributed",
                                 "lrs",
                                 "",
                                 noise.c_str()}) {
    CAPTURE(path.substr(0, 80));
    const Guess guess = guess_key(path);
    CHECK(guess.kind == Guess::Kind::none);
    CHECK(guess.path.empty());
  }
}

TEST_CASE("a last name alone is looked for in every section") {
  CHECK(guess_name("stagee").path == "zero_optimization.stage");
  CHECK(guess_name("warmup_num_step").path == "scheduler.params.warmup_num_steps");
  CHECK(guess_name("msamp").kind == Guess::Kind::none);
}
