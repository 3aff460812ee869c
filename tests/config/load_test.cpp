#include "config_schemas/load.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <random>

#include "tests/config/config_support.h"
#include "tests/support/sweep.h"
#include "tests/support/temporary_directory.h"

using namespace zero;
using zero::tests::has;
using zero::tests::parse;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

namespace {

constexpr std::string_view complete = R"({
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 2,
  "gradient_clipping": 0.5,
  "steps_per_print": 7,
  "seed": 42,
  "bf16": {"enabled": true},
  "zero_optimization": {
    "stage": 3,
    "reduce_bucket_size": 2e8,
    "allgather_bucket_size": 100000000,
    "stage3_prefetch_bucket_size": 5e7,
    "stage3_max_live_parameters": 1e9,
    "max_reuse_distance": 1e8,
    "stage3_param_persistence_threshold": 1e5,
    "model_persistence_threshold": 0
  },
  "optimizer": {"type": "adamw", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-6,
    "weight_decay": 0.1, "adam_w_mode": false, "bias_correction": false}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 1e-6, "warmup_max_lr": 3e-4,
    "warmup_num_steps": 10, "total_num_steps": 1e3, "warmup_type": "linear"}},
  "zero_core": {"reshard_after_forward": false, "gradient_sync": "last", "reduce_group_size": 4,
    "time_limit_seconds": 30, "param_groups": {"norms": {"weight_decay": 0, "lr_scale": 2}}}
})";

}  // namespace

TEST_CASE("no file: the defaults") {
  const Config config = load_config("");
  CHECK(config.zero_optimization.stage == 0);
  CHECK(config.gradient_clipping == 1.0);
  CHECK(config.optimizer.type == "AdamW");
  CHECK(config.scheduler.type.empty());
  CHECK(describe(config) == describe(Config{}));
}

TEST_CASE("every key reaches its member") {
  const Config config = parse(complete);
  CHECK(config.batch.train_batch_size == 64);
  CHECK(config.batch.train_micro_batch_size_per_gpu == 4);
  CHECK(config.batch.gradient_accumulation_steps == 2);
  CHECK(config.gradient_clipping == 0.5);
  CHECK(config.steps_per_print == 7);
  CHECK(config.seed == 42);
  CHECK(config.bf16_enabled);
  const ZeroOptions& zero = config.zero_optimization;
  CHECK(zero.stage == 3);
  CHECK(zero.reduce_bucket_size == 200'000'000);
  CHECK(zero.allgather_bucket_size == 100'000'000);
  CHECK(zero.prefetch_bucket_size == 50'000'000);
  CHECK(zero.max_live_parameters == 1'000'000'000);
  CHECK(zero.max_reuse_distance == 100'000'000);
  CHECK(zero.param_persistence_threshold == 100'000);
  CHECK(zero.model_persistence_threshold == 0);
  CHECK(config.optimizer.type == "AdamW");
  CHECK(config.optimizer.learning_rate == 3e-4);
  CHECK(config.optimizer.beta2 == 0.95);
  CHECK(config.optimizer.epsilon == 1e-6);
  CHECK(config.optimizer.weight_decay == 0.1);
  CHECK_FALSE(config.optimizer.adam_w_mode);
  CHECK_FALSE(config.optimizer.bias_correction);
  CHECK(config.scheduler.type == "WarmupDecayLR");
  CHECK(config.scheduler.warmup_min_lr == 1e-6);
  CHECK(config.scheduler.warmup_max_lr == 3e-4);
  CHECK(config.scheduler.warmup_num_steps == 10);
  CHECK(config.scheduler.total_num_steps == 1000);
  CHECK(config.scheduler.warmup_type == "linear");
  CHECK_FALSE(config.zero_core.reshard_after_forward);
  CHECK(config.zero_core.gradient_sync == GradientSync::last);
  CHECK(config.zero_core.reduce_group_size == 4);
  CHECK(config.zero_core.time_limit_seconds == 30.0);
  CHECK(config.zero_core.param_groups.at("norms").lr_scale == 2.0);
}

TEST_CASE("unknown and misspelt keys at every level name the nearest key") {
  const struct {
    const char *text, *message;
  } cases[] = {
      {R"({"train_batchsize": 1})",
       "ds.json:1:2: train_batchsize: unknown key; nearest known key: train_batch_size"},
      {R"({"zero_optimization": {"stagee": 1}})",
       "ds.json:1:24: zero_optimization.stagee: unknown key; nearest known key: "
       "zero_optimization.stage"},
      {R"({"optimizer": {"param": {}}})",
       "ds.json:1:16: optimizer.param: unknown key; nearest known key: optimizer.params"},
      {R"({"optimizer": {"params": {"LR": 1}}})",
       "ds.json:1:27: optimizer.params.LR: unknown key; nearest known key: optimizer.params.lr"},
      {R"({"zero_core": {"param_groups": {"g": {"lr_scales": 1}}}})",
       "ds.json:1:39: zero_core.param_groups.g.lr_scales: unknown key; nearest known key: "
       "zero_core.param_groups.NAME.lr_scale"},
      {R"({"optimizer.type": "Adam"})",
       "ds.json:1:2: optimizer.type: unknown key; nearest known key: optimizer.type"},
  };
  for (const auto& c : cases) CHECK(refusal(c.text) == c.message);
}

TEST_CASE("all problems at once, in the order of the file, overrides last") {
  const std::string message = refusal(
      "{\n"
      "  \"zero_optimization\": {\"stage\": 4, \"overlap\": true, \"reduce_bucket_size\": 0},\n"
      "  \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": \"much\", \"betas\": [0.9, "
      "0.95]}},\n"
      "  \"seed\": 1, \"seed\": 2,\n"
      "  \"train_batch_size\": 10, \"train_micro_batch_size_per_gpu\": 3\n"
      "}",
      {{"zero_optimization.max_live", "3"}, {"gradient_clipping", "much"}});
  CHECK(
      message ==
      "ds.json:2:34: zero_optimization.stage: 4 is out of range; allowed: an integer from 0 to 3\n"
      "ds.json:2:37: zero_optimization.overlap: unknown key; nearest known key: "
      "zero_optimization.overlap_comm\n"
      "ds.json:2:76: zero_optimization.reduce_bucket_size: 0 is out of range; allowed: an integer "
      "from 1 to 1e+15\n"
      "ds.json:3:49: optimizer.params.lr: \"much\" is not a number; allowed: a number from 0 to "
      "1e+06\n"
      "ds.json:3:66: optimizer.params.betas: optimizer SGD has no such parameter; it belongs to "
      "Adam, AdamW, Lamb, Lion, Muon\n"
      "ds.json:4:14: duplicate key \"seed\", first given in line 4\n"
      "ds.json:5:23: train_batch_size: 10 fits no number of ranks; allowed: multiples of "
      "train_micro_batch_size_per_gpu 3\n"
      "override: zero_optimization.max_live: unknown key; nearest known key: "
      "zero_optimization.max_live_parameters\n"
      "override: gradient_clipping: \"much\" is not a number; allowed: a number from -1e+30 to "
      "1e+30");
}

TEST_CASE("many problems are counted, not all printed, in bounded time") {
  std::string keys;
  for (int i = 0; i < 9997; ++i) keys += "\"overlap_comm_" + std::to_string(i) + "\": 1,";
  const std::string message = refusal("{\"zero_optimization\": {" + keys + "\"x\": 1}}");
  CHECK(std::ranges::count(message, '\n') == 100);
  CHECK(has(message, "and 9898 more problems"));
  const Config config = parse("{\"train_batch_size\": 8," + keys + "}");
  REQUIRE(config.notices.size() == 1);
  CHECK(has(config.notices[0], "overlap_comm_0, overlap_comm_1, "));
  CHECK(has(config.notices[0], " and 9977 more: no effect here"));
}

TEST_CASE("two spellings of one key") {
  CHECK(
      refusal(
          R"({"zero_optimization": {"max_live_parameters": 1, "stage3_max_live_parameters": 1}})") ==
      "ds.json:1:50: zero_optimization.stage3_max_live_parameters: is another spelling of "
      "max_live_parameters, which is given too; keep one");
}

TEST_CASE("a parameter of another optimizer or schedule is refused") {
  const auto in = [](const char* section, const char* type, const char* params) {
    return "{\"" + std::string(section) + "\": {\"type\": \"" + type + "\", \"params\": {" +
           params + "}}}";
  };
  for (const char* param : {"\"betas\": [0.9, 0.9]", "\"eps\": 1", "\"adam_w_mode\": true",
                            "\"bias_correction\": true"})
    CHECK(has(refusal(in("optimizer", "SGD", param)),
              "optimizer SGD has no such parameter; it belongs to Adam"));
  for (const char* eps : {"\"eps\": 1", "\"eps\": [null, 0.001]"})
    CHECK(has(refusal(in("optimizer", "Adafactor", eps)),
              "eps[0] and eps[1] are eps1 and eps2 here"));
  for (const char* type : {"Adam", "adamW"})
    for (const char* param : {"\"momentum\": 0.9", "\"dampening\": 0", "\"nesterov\": false"})
      CHECK(has(refusal(in("optimizer", type, param)), "has no such parameter; it belongs to SGD"));
  CHECK(has(refusal(in("scheduler", "WarmupLR", "\"total_num_steps\": 5")),
            "scheduler WarmupLR has no"));
  CHECK(has(refusal(in("scheduler", "LRRangeTest", "\"warmup_max_lr\": 1")),
            "scheduler LRRangeTest has no such parameter; it belongs to WarmupLR, WarmupDecayLR"));
  CHECK(has(refusal(in("scheduler", "WarmupLR", "\"cos_min_ratio\": 0.1")),
            "it belongs to WarmupCosineLR"));
  CHECK(has(refusal(R"({"scheduler": {"params": {"warmup_num_steps": 5}}})"),
            "no scheduler.type is given that has it"));
  CHECK(has(refusal(in("optimizer", "Adamax", "\"lr\": 1")),
            "allowed: one of Adam, AdamW, Lamb, Lion, Adagrad, SGD, Muon, "
            "Adafactor"));
  CHECK(has(refusal(in("scheduler", "warmuplr", "")), "allowed: one of WarmupLR"));
  // Only the type is reported, since one wrong type does not make all its parameters wrong.
  CHECK(std::ranges::count(refusal(in("optimizer", "Adamm", "\"lr\": 1, \"momentum\": 0.5")),
                           '\n') == 0);
}

TEST_CASE("rates given to WarmupCosineLR are read as shares of the optimizer's") {
  const auto with = [](const std::string& params) {
    return R"({"train_batch_size": 8, "optimizer": {"params": {"lr": 0.5}}, "scheduler": {"type":
               "WarmupCosineLR", "params": {"total_num_steps": 9, "warmup_num_steps": 2, )" +
           params + "}}}";
  };
  const Config config = parse(with("\"warmup_min_lr\": 0.125, \"warmup_max_lr\": 0.5"));
  CHECK(config.scheduler.warmup_min_ratio == 0.25);
  REQUIRE(config.notices.size() == 2);
  CHECK(has(config.notices[0], "scheduler.params.warmup_min_lr: read as a share"));
  CHECK(has(refusal(with("\"warmup_max_lr\": 0.25")), "rises to optimizer.params.lr"));
  CHECK(has(refusal(with("\"warmup_min_lr\": 0, \"warmup_min_ratio\": 0")), "another form of"));
}

TEST_CASE("rules over several values") {
  CHECK(has(refusal(R"({"scheduler": {"type": "WarmupDecayLR"}})"),
            "total_num_steps: must be given for WarmupDecayLR"));
  CHECK(has(refusal(R"({"scheduler": {"type": "WarmupCosineLR"}})"),
            "must be given for WarmupCosineLR"));
  const auto decay = [](const std::string& more) {
    return parse(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9)" +
                 more + "}}}")
        .scheduler;
  };
  CHECK(decay("").warmup_max_lr == 1e-3);
  const auto notices = [](const std::string& type, const std::string& params) {
    return parse(R"({"train_batch_size": 8, "scheduler": {"type": ")" + type + R"(", "params": {)" +
                 params + "}}}")
        .notices;
  };
  const std::string ten = R"("total_num_steps": 10, "warmup_num_steps": )";
  for (const char* type : {"WarmupDecayLR", "WarmupCosineLR"}) {
    REQUIRE(notices(type, ten + "11").size() == 1);
    CHECK(has(notices(type, ten + "11").front(),
              "scheduler.params.total_num_steps: 10 is less than warmup_num_steps, 11"));
    CHECK(notices(type, ten + "10").empty());
    CHECK(notices(type, R"("total_num_steps": 10)").size() == 1);  // the default is 1000
  }
  CHECK(decay("}}, \"optimizer\": {\"params\": {\"lr\": 0.25").warmup_max_lr == 1e-3);
  CHECK(decay(", \"warmup_max_lr\": null}}, \"optimizer\": {\"params\": {\"lr\": 0.25")
            .warmup_max_lr == 0.25);
  CHECK(decay(", \"warmup_max_lr\": 0.5").warmup_max_lr == 0.5);
  CHECK_FALSE(parse(R"({"scheduler": {"type": "WarmupLR"}})").scheduler.warmup_max_lr.has_value());
  const std::string nesterov = R"({"optimizer": {"type": "SGD", "params": {"nesterov": true)";
  CHECK(has(refusal(nesterov + "}}}"), "needs momentum greater than 0 and dampening 0"));
  CHECK(has(refusal(nesterov + ", \"momentum\": 0.9, \"dampening\": 0.1}}}"), "dampening 0"));
  CHECK(parse(nesterov + ", \"momentum\": 0.9}}}").optimizer.nesterov);
  const auto batch = [](const char* text) {
    return refusal("{\"train_batch_size\": " + std::string(text) + "}");
  };
  CHECK(has(batch("10, \"gradient_accumulation_steps\": 4"),
            "multiples of gradient_accumulation_steps 4"));
  CHECK(has(batch("10, \"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": 4"),
            "multiples of train_micro_batch_size_per_gpu 2 x gradient_accumulation_steps 4"));
  CHECK(has(batch("1e9, \"train_micro_batch_size_per_gpu\": 999999999, "
                  "\"gradient_accumulation_steps\": 999999999"),
            "multiples"));
  CHECK(has(batch("0"), "0 is out of range"));
}

TEST_CASE("accumulation that follows from the ranks is left open by auto") {
  TrainerValues values;
  values.accumulation_steps = 8;
  const auto steps = [&](const std::string& core) {
    return parse(R"({"train_batch_size": 96, "train_micro_batch_size_per_gpu": 4,
                     "gradient_accumulation_steps": "auto", "zero_core": )" +
                     core + "}",
                 {}, values)
        .batch.gradient_accumulation_steps;
  };
  CHECK(steps("{}") == 8);
  CHECK(steps(R"({"rank_independent": true})") == 0);
}

TEST_CASE("the root must be an object") {
  for (const char* text : {"[]", "1", "null", "\"zero_optimization\""})
    CHECK(has(refusal(text), "ds.json:1:1: a config must be a JSON object"));
}

TEST_CASE("files that cannot be read: the path, and never a wait") {
  const TemporaryDirectory directory;
  const auto message = [](const std::string& path) -> std::string {
    try {
      load_config(path);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message(directory / "none.json") ==
        (directory / "none.json") + ": cannot be read: No such file or directory");
  CHECK(message(directory.path().string()) ==
        directory.path().string() + ": is a directory; a JSON file is needed");
  REQUIRE(::mkfifo((directory / "fifo").c_str(), 0600) == 0);
  CHECK(has(message(directory / "fifo"), "is not a regular file"));
  CHECK(has(message("/dev/zero"), "is not a regular file"));
  if (::geteuid() != 0) {
    const std::string locked = directory.file("locked.json", "{}");
    ::chmod(locked.c_str(), 0);
    CHECK(has(message(locked), "Permission denied"));
  }
  CHECK(has(message(directory.file("large.json", std::string((1 << 20) + 1, ' '))),
            "larger than 1 MiB"));
  CHECK(has(message(directory.file("bad.json", "{\n \"a\"")), "bad.json:2:5: not valid JSON"));
  CHECK(load_config(directory.file("good.json", std::string(complete))).seed == 42);
}

TEST_CASE("cut short at every byte, and with every byte changed: a config or a ConfigError") {
  std::mt19937 random(1);
  for (std::size_t size = 0; size < complete.size(); ++size)
    CHECK_THROWS_AS(parse(complete.substr(0, size)), ConfigError);
  sweep::Part part(1, 5);
  for (std::size_t i = 0; i < complete.size(); ++i)
    for (int round = 0; round < 8; ++round) {
      if (!part.next_is_due()) continue;
      std::string text(complete);
      text[i] = static_cast<char>(round < 4 ? random() : "{}[]\",:0-e\\ntf"[random() % 14]);
      try {
        parse(text);
      } catch (const ConfigError&) {
      }
    }
}

TEST_CASE("the dtypes of a run and its loss scale") {
  const Config config = parse(R"({
    "fp16": {"enabled": "true", "loss_scale": "0", "initial_scale_power": 12, "hysteresis": 4,
             "loss_scale_window": 500.0, "consecutive_hysteresis": 1, "min_loss_scale": 2},
    "communication_data_type": "FP32",
    "data_types": {"grad_accum_dtype": "torch.bfloat16", "buffer_dtype": "half"},
    "prescale_gradients": true, "gradient_predivide_factor": 8})");
  CHECK(config.fp16_enabled);
  CHECK(config.loss_scale.loss_scale == 0);
  CHECK(config.loss_scale.initial_scale_power == 12);
  CHECK(config.loss_scale.hysteresis == 4);
  CHECK(config.loss_scale.loss_scale_window == 500);
  CHECK(config.loss_scale.consecutive_hysteresis);
  CHECK(config.loss_scale.min_loss_scale == 2);
  CHECK(config.communication_data_type == DType::fp32);
  CHECK(config.grad_accum_dtype == DType::bf16);
  CHECK(config.buffer_dtype == DType::fp16);
  CHECK(config.prescale_gradients);
  CHECK(config.gradient_predivide_factor == 8);
  const Config none = parse(R"({"communication_data_type": null,
                "data_types": {"grad_accum_dtype": null, "buffer_dtype": null}})");
  CHECK_FALSE(none.communication_data_type);
  CHECK_FALSE(none.grad_accum_dtype);
  CHECK_FALSE(none.buffer_dtype);
  CHECK(none.loss_scale.initial_scale_power == 16);
}

TEST_CASE("a config as plain JSON, for a program's own keys") {
  CHECK(config_as_json(R"(# of mine
{ "stage": 2, "name": "a\u00e9\"b", /* both */ "list": [1e5, true, null,], })",
                       "config") == R"({"stage": 2, "name": "aé\"b", "list": [1e5, true, null]})");
  CHECK_THROWS_WITH_AS(config_as_json("{\"a\": 1,\n \"a\": 2}", "mine.json"),
                       doctest::Contains("mine.json:2:2"), ConfigError);
  const TemporaryDirectory directory;
  const std::string file =
      directory.file("own.json", R"({"fsdp": "full_shard", "per_device_train_batch_size": 3})");
  CHECK(has(config_as_json(file), "\"stage\": 3"));
}

TEST_CASE("whether the optimizer is the file's") {
  CHECK_FALSE(parse("{}").optimizer_given);
  CHECK(parse(R"({"optimizer": {"type": "AdamW"}})").optimizer_given);
}
