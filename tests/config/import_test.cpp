#include "config_schemas/import.h"

#include <doctest/doctest.h>

#include "config_schemas/document.h"
#include "tests/config/config_support.h"
#include "tests/support/temporary_directory.h"

using namespace zero;
using namespace zero::config_schemas;
using zero::tests::has;
using zero::tests::TemporaryDirectory;

namespace {

bool reads_yaml() {
  return parse_yaml("a: 1").readable;
}

Loaded load(std::string_view text, const std::string& file = "accelerate.yaml") {
  return load_text(text, file, {}, {});
}

std::string refused(std::string_view text, const std::string& file = "accelerate.yaml") {
  try {
    load(text, file);
  } catch (const ConfigError& error) {
    return error.what();
  }
  FAIL("accepted: " << std::string(text));
  return "";
}

std::string effect(const Loaded& loaded, const std::string& key) {
  for (const ImportedKey& imported : loaded.imported)
    if (imported.key == key) return imported.effect;
  return "";
}

constexpr std::string_view accelerate = R"(compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE   # the next unit
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: false
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_use_orig_params: true
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
use_cpu: false
)";

std::string with_fsdp(const std::string& settings) {
  return R"({"distributed_type": "FSDP", "fsdp_config": {)" + settings + "}}";
}

}  // namespace

TEST_CASE("an Accelerate YAML with FSDP: the plan, and an effect for every key") {
  if (!reads_yaml()) return;
  const Loaded loaded = load(accelerate);
  CHECK(loaded.config.zero_optimization.stage == 3);
  CHECK(loaded.config.zero_core.reshard_after_forward);
  CHECK(loaded.config.bf16_enabled);
  CHECK_FALSE(loaded.config.zero_optimization.prefetch_bucket_size.has_value());
  CHECK(loaded.imported.size() == 24);
  CHECK(effect(loaded, "fsdp_config.fsdp_sharding_strategy") == "zero_optimization.stage 3");
  CHECK(effect(loaded, "mixed_precision") == "bf16.enabled true");
  CHECK(effect(loaded, "num_processes") == "start this many ranks: zero run -n 8");
  CHECK(has(effect(loaded, "fsdp_config.fsdp_use_orig_params"), "no effect"));
  CHECK(has(loaded.config.notices.front(), "compute_environment: "));
}

TEST_CASE("FSDP's strategies, in both versions' names") {
  const struct {
    const char* settings;
    int stage;
    bool reshard;
  } cases[] = {
      {R"("fsdp_sharding_strategy": "FULL_SHARD")", 3, true},
      {R"("fsdp_sharding_strategy": 1)", 3, true},
      {R"("fsdp_sharding_strategy": "SHARD_GRAD_OP")", 3, false},
      {R"("fsdp_sharding_strategy": "2")", 3, false},
      {R"("fsdp_sharding_strategy": "NO_SHARD")", 0, true},
      {R"("fsdp_reshard_after_forward": "FULL_SHARD")", 3, true},
      {R"("fsdp_version": 2, "fsdp_reshard_after_forward": true)", 3, true},
      {R"("fsdp_version": 2, "fsdp_reshard_after_forward": false)", 3, false},
      {R"("fsdp_version": 2)", 3, true},
  };
  for (const auto& c : cases) {
    CAPTURE(c.settings);
    const Config config = load(with_fsdp(c.settings), "a.json").config;
    CHECK(config.zero_optimization.stage == c.stage);
    CHECK(config.zero_core.reshard_after_forward == c.reshard);
  }
  CHECK(load(with_fsdp(R"("fsdp_backward_prefetch": "BACKWARD_POST")"), "a.json")
            .config.zero_optimization.prefetch_bucket_size == 0);
}

TEST_CASE("hybrid strategies are stage 3 in groups of the ranks of a node") {
  for (const char* strategy : {"\"HYBRID_SHARD\"", "4", "\"_HYBRID_SHARD_ZERO2\"", "5"}) {
    CAPTURE(std::string(strategy));
    const Config config =
        load(with_fsdp(R"("fsdp_sharding_strategy": )" + std::string(strategy)), "a.json").config;
    CHECK(config.zero_optimization.stage == 3);
    CHECK(config.zero_core.shard_group_size == 0);
    const bool zero2 = std::string(strategy).find_first_of("25") != std::string::npos;
    CHECK(config.zero_core.reshard_after_forward == !zero2);
  }
}

TEST_CASE("resharding to N ranks is a second copy that they share") {
  const Config config =
      load(with_fsdp(R"("fsdp_version": 2, "fsdp_reshard_after_forward": 8)"), "a.json").config;
  CHECK(config.zero_optimization.stage == 3);
  CHECK(config.zero_optimization.hpz_partition_size == 8);
}

TEST_CASE("unsupported values are refused, with the user's own key and place") {
  const struct {
    const char *settings, *message;
  } cases[] = {
      {R"("fsdp_sharding_strategy": "ALL")",
       "a.json:1:72: fsdp_config.fsdp_sharding_strategy: \"ALL\" is not known"},
      {R"("fsdp_reshard_after_forward": 2.5)", "zero_hpz_partition_size"},
      {R"("fsdp_offload_params": "maybe")", "neither true nor false"},
      {R"("fsdp_ignored_modules": ["lm_head"])", "is not supported by this version"},
      {R"("fsdp_version": 3)", "3 is not known; allowed: 1, 2"},
      {R"("fsdp_backward_prefetch": "SOON")", "\"SOON\" is not known"},
      {R"("fsdp_shard": 1)", "fsdp_config.fsdp_shard: is not read from such a file"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.settings);
    CHECK(has(refused(with_fsdp(c.settings), "a.json"), c.message));
  }
  const auto json = [](const char* members) {
    return refused("{\"distributed_type\": \"FSDP\", " + std::string(members) + "}", "a.json");
  };
  CHECK(load(R"({"distributed_type": "FSDP", "mixed_precision": "fp16"})", "a.json")
            .config.fp16_enabled);
  CHECK(has(json(R"("mixed_precision": "fp8")"), "\"fp8\" is not supported by this version"));
  CHECK(has(json(R"("megatron_lm_config": {"tp": 2})"), "megatron_lm_config: an object is not"));
  CHECK(has(json(R"("fsdp_config": 3)"), "fsdp_config: must be a section"));
  CHECK(has(refused(R"({"distributed_type": "MEGATRON_LM"})", "a.json"), "is not known"));
}

TEST_CASE("an Accelerate file with DeepSpeed inside") {
  const Loaded loaded = load(R"({"distributed_type": "DEEPSPEED", "mixed_precision": "bf16",
      "deepspeed_config": {"zero_stage": 1, "gradient_accumulation_steps": 4,
      "gradient_clipping": 0.5, "offload_optimizer_device": "nvme", "offload_param_device": "none",
      "offload_optimizer_nvme_path": "/disk", "offload_param_nvme_path": "none",
      "zero3_init_flag": false}})",
                             "a.json");
  CHECK(loaded.config.zero_optimization.stage == 1);
  CHECK(loaded.config.batch.gradient_accumulation_steps == 4);
  CHECK(loaded.config.gradient_clipping == 0.5);
  CHECK(loaded.config.bf16_enabled);
  CHECK(loaded.config.zero_optimization.offload_optimizer.nvme_path == "/disk");
  CHECK(loaded.config.zero_optimization.offload_param.nvme_path.empty());
  const Loaded bare =
      load(R"({"distributed_type": "DEEPSPEED", "deepspeed_config": {}})", "a.json");
  CHECK(bare.config.zero_optimization.stage == 2);
  CHECK(has(effect(bare, "deepspeed_config.zero_stage"), "Accelerate's default"));
  CHECK(load(R"({"distributed_type": "MULTI_GPU"})", "a.json").config.zero_optimization.stage == 0);
}

TEST_CASE("a named DeepSpeed file is found next to the Accelerate file; its auto follows") {
  const TemporaryDirectory directory;
  directory.file("ds.json", R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}})");
  const std::string file = directory.file("a.json", R"({"distributed_type": "DEEPSPEED",
      "mixed_precision": "bf16", "deepspeed_config": {"deepspeed_config_file": "ds.json"}})");
  const Config config = load_config(file);
  CHECK(config.zero_optimization.stage == 2);
  CHECK(config.bf16_enabled);
  directory.file("ds.json", R"({"distributed_type": "DEEPSPEED",
      "deepspeed_config": {"deepspeed_config_file": "ds.json"}})");
  CHECK_THROWS_WITH_AS(load_config(file), doctest::Contains("is an Accelerate file"), ConfigError);
  directory.file("ds.json", R"({"zero_optimization": {"stage": 9}})");
  CHECK_THROWS_WITH_AS(load_config(file),
                       doctest::Contains("ds.json:1:33: zero_optimization.stage"), ConfigError);
}

namespace {

// An Accelerate file that names a DeepSpeed config, and that config.
class Pair {
 public:
  Pair(const std::string& accelerate, const std::string& deepspeed) {
    directory_.file("ds.json", deepspeed);
    file_ = directory_.file("a.json", R"({"distributed_type": "DEEPSPEED", )" + accelerate + "}");
  }

  Loaded load(const Text& overrides = {}) const { return load_file(file_, overrides, {}); }
  std::string refused() const {
    try {
      load();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

 private:
  TemporaryDirectory directory_;
  std::string file_;
};

std::string naming(const std::string& more = "") {
  return R"("deepspeed_config": {"deepspeed_config_file": "ds.json")" + more + "}";
}

const std::string precision = R"(, "mixed_precision": )";

}  // namespace

TEST_CASE("mixed_precision enables the named config's block if that leaves it open") {
  for (const char* config : {R"({"zero_optimization": {"stage": 2}})", R"({"bf16": null})",
                             R"({"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}})",
                             R"({"bf16": {"enabled": true}, "fp16": {"enabled": false}})",
                             R"({"bfloat16": {"enabled": "auto"}})"}) {
    CAPTURE(config);
    const Loaded loaded = Pair(naming() + precision + "\"bf16\"", config).load();
    CHECK(loaded.config.bf16_enabled);
    CHECK_FALSE(loaded.config.fp16_enabled);
    CHECK(effect(loaded, "mixed_precision") == "bf16.enabled true");
  }
  const Loaded fp16 =
      Pair(naming() + precision + "\"fp16\"", R"({"bf16": {"enabled": "auto"}})").load();
  CHECK(fp16.config.fp16_enabled);
  CHECK_FALSE(fp16.config.bf16_enabled);
  CHECK(effect(fp16, "mixed_precision") == "fp16.enabled true");
  // "no" is the default, and leaves the choice to the config.
  const Loaded no = Pair(naming() + precision + "\"no\"", R"({"bf16": {"enabled": true}})").load();
  CHECK(no.config.bf16_enabled);
  CHECK(has(effect(no, "mixed_precision"), "bf16.enabled true, by "));
  CHECK(has(effect(no, "mixed_precision"), "ds.json:1:22"));
}

TEST_CASE("a contradiction to the named config is refused, with both places") {
  const struct {
    std::string accelerate, deepspeed, first, second;
  } cases[] = {
      {precision + "\"bf16\"", R"({"fp16": {"enabled": true}})",
       "mixed_precision: means bf16.enabled, but", "fp16.enabled true ("},
      {precision + "\"fp16\"", R"({"bf16": {"enabled": "True"}})",
       "mixed_precision: means fp16.enabled, but", "bf16.enabled \"True\" ("},
      {precision + "\"bf16\"", R"({"bf16": {"enabled": false}})",
       "mixed_precision: means bf16.enabled, but", "bf16.enabled false ("},
  };
  for (const auto& c : cases) {
    const std::string message = Pair(naming() + c.accelerate, c.deepspeed).refused();
    CAPTURE(message);
    CHECK(has(message, c.first));
    CHECK(has(message, c.second));
    CHECK(has(message, "a.json:1:"));
    CHECK(has(message, "ds.json:1:"));
  }
  const std::string config = R"({"zero_optimization": {"stage": 2}, "gradient_clipping": "auto"})";
  const auto with = [&](const std::string& key) { return Pair(naming(", " + key), config); };
  CHECK(
      has(with(R"("zero_stage": 3)").refused(),
          "deepspeed_config.zero_stage: means zero_optimization.stage 3, but the DeepSpeed config "
          "next to it says zero_optimization.stage 2 ("));
  CHECK(has(with(R"("gradient_accumulation_steps": 4)").refused(),
            "has no gradient_accumulation_steps, and Accelerate would pass over the key here"));
  CHECK(has(with(R"("offload_optimizer_device": "cpu")").refused(),
            "has no zero_optimization.offload"));
  CHECK(with(R"("zero_stage": "2")").load().config.zero_optimization.stage == 2);
  CHECK(with(R"("gradient_clipping": 0.25)").load().config.gradient_clipping == 0.25);
  CHECK(with(R"("gradient_accumulation_steps": 1, "offload_optimizer_device": "none")")
            .refused()
            .empty());
  CHECK(
      has(Pair(naming(), "{\"seed\": 1,\n \"seed\": 2}").refused(), "ds.json:2:2: duplicate key"));
}

TEST_CASE("effects are reported, also under overrides and with other types") {
  const Pair pair(naming() + precision + "\"bf16\"", R"({"zero_optimization": {"stage": 2}})");
  const Loaded loaded = pair.load({{"bf16.enabled", "false"}});
  CHECK_FALSE(loaded.config.bf16_enabled);
  CHECK(effect(loaded, "mixed_precision") == "bf16.enabled false, an override");
  const Loaded other = load(R"({"distributed_type": "MULTI_GPU",
      "deepspeed_config": {"deepspeed_config_file": "none.json"},
      "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD"}})",
                            "a.json");
  CHECK(other.config.zero_optimization.stage == 0);
  CHECK(effect(other, "deepspeed_config") == "no effect: distributed_type is MULTI_GPU");
  CHECK(effect(other, "fsdp_config") == "no effect: distributed_type is MULTI_GPU");
}

TEST_CASE("older names and current ones of FSDP") {
  const auto fsdp = [](const std::string& settings) { return load(with_fsdp(settings), "a.json"); };
  const Loaded old = fsdp(R"("fsdp_backward_prefetch_policy": "BACKWARD_POST")");
  CHECK(old.config.zero_optimization.prefetch_bucket_size == 0);
  CHECK(has(effect(old, "fsdp_config.fsdp_backward_prefetch_policy"),
            "; an old name of fsdp_backward_prefetch"));
  CHECK(has(refused(with_fsdp(R"("fsdp_backward_prefetch_policy": "BACKWARD_PRE",
                                "fsdp_backward_prefetch": "BACKWARD_POST")"),
                    "a.json"),
            "is an old name of fsdp_backward_prefetch, which is given too"));
  const Loaded now = load(R"({"fsdp": true, "fsdp_config": {"version": 2, "cpu_offload": true,
      "reshard_after_forward": false, "activation_checkpointing": true, "min_num_params": 0,
      "xla": false, "xla_fsdp_v2": false, "xla_fsdp_grad_ckpt": false, "xla_fsdp_settings": {}}})",
                          "args.json");
  CHECK(now.config.zero_optimization.stage == 3);
  CHECK_FALSE(now.config.zero_core.reshard_after_forward);
  CHECK(now.config.zero_optimization.offload_param.device == OffloadDevice::cpu);
  CHECK(has(refused(R"({"fsdp": true, "fsdp_config": {"xla": true}})", "args.json"),
            "fsdp_config.xla: true is not supported"));
  const Loaded off =
      load(R"({"fsdp": false, "fsdp_config": {"reshard_after_forward": true}})", "args.json");
  CHECK(off.config.zero_optimization.stage == 0);
  CHECK(effect(off, "fsdp_config") == "no effect: fsdp is off");
  CHECK(has(effect(fsdp(R"("fsdp_version": 2, "fsdp_activation_checkpointing_offload": true)"),
                   "fsdp_config.fsdp_activation_checkpointing_offload"),
            "no effect"));
  CHECK(load(R"({"distributed_type": "NO", "fp16": true})", "a.json").config.fp16_enabled);
}

TEST_CASE("the data axes of parallelism_config are shard groups, other axes are refused") {
  const auto mesh = [](const std::string& axes, const std::string& more = "") {
    return R"({"distributed_type": "FSDP", "fsdp_config": {"fsdp_version": 2}, )" + more +
           R"("parallelism_config": {)" + axes + "}}";
  };
  const std::string prefix = "\"parallelism_config_";
  const Loaded hybrid = load(mesh(prefix + R"(dp_replicate_size": 2, )" + prefix +
                                      R"(dp_shard_size": 4, )" + prefix + R"(tp_size": 1)",
                                  R"("num_processes": 8, )"),
                             "a.json");
  CHECK(hybrid.config.zero_optimization.stage == 3);
  CHECK(hybrid.config.zero_core.shard_group_size == 4);
  CHECK_FALSE(load(mesh(R"("dp_shard_size": 8)"), "a.json").config.zero_core.shard_group_size);
  CHECK(
      has(refused(mesh(R"("dp_replicate_size": 2, "dp_shard_size": 4)", R"("num_processes": 4, )"),
                  "a.json"),
          "are 8 ranks, but num_processes is 4"));
  CHECK(has(refused(mesh(R"("dp_replicate_size": 2)"), "a.json"), "leaves FSDP nothing to shard"));
  for (const char* axis : {"tp_size", "cp_size", "sp_size"}) {
    CAPTURE(axis);
    CHECK(has(refused(mesh("\"" + std::string(axis) + "\": 2"), "a.json"),
              "parallelism_config." + std::string(axis) + ": 2 is not supported: every rank"));
  }
  CHECK(has(refused(mesh(R"("dp_shard_size": 0)"), "a.json"), "0 is not a number of ranks"));
  CHECK(has(refused(mesh(R"("ep_size": 2)"), "a.json"), "parallelism_config.ep_size: is not read"));
}

TEST_CASE("a Trainer's arguments next to the DeepSpeed config that they hold or name") {
  const auto trainer = [](const std::string& config, const std::string& more) {
    return R"({"deepspeed": )" + config + ", " + more + "}";
  };
  const std::string open = R"({"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1}})";
  const Loaded loaded =
      load(trainer(open, R"("bf16": true, "learning_rate": 0.25, "output_dir": "x")"), "args.json");
  CHECK(loaded.config.bf16_enabled);
  CHECK(loaded.config.optimizer.learning_rate == 0.25);
  CHECK(loaded.config.zero_optimization.stage == 1);
  CHECK(has(
      refused(trainer(R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.5}}})",
                      R"("learning_rate": 0.25)"),
              "args.json"),
      "learning_rate: means optimizer.params.lr 0.25, but the DeepSpeed config next to it says"));
  CHECK(has(refused(trainer(open, R"("fsdp": "full_shard")"), "args.json"), "exclude each other"));
}

TEST_CASE("a Trainer's arguments") {
  const auto config = [](const char* text) { return load(text, "args.json").config; };
  CHECK(config(R"({"fsdp": "full_shard auto_wrap"})").zero_optimization.stage == 3);
  const Config grad_op = config(R"({"fsdp": ["shard_grad_op"], "bf16": true,
      "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 1e-4,
      "fsdp_config": {"backward_prefetch": "backward_post", "min_num_params": 0}})");
  CHECK_FALSE(grad_op.zero_core.reshard_after_forward);
  CHECK(grad_op.bf16_enabled);
  CHECK(grad_op.batch.train_micro_batch_size_per_gpu == 4);
  CHECK(grad_op.optimizer.learning_rate == 1e-4);
  CHECK(grad_op.zero_optimization.prefetch_bucket_size == 0);
  CHECK(config(R"({"fsdp": true, "fsdp_config": {"version": 2, "reshard_after_forward": false}})")
            .zero_optimization.stage == 3);
  CHECK(config(R"({"fsdp": "", "fsdp_config": {}})").zero_optimization.stage == 0);
  CHECK(config(R"({"deepspeed": {"zero_optimization": {"stage": 2}}})").zero_optimization.stage ==
        2);
  CHECK(load(R"({"fsdp": "hybrid_shard"})", "a.json").config.zero_core.shard_group_size == 0);
  CHECK(config(R"({"fsdp": "full_shard offload"})").zero_optimization.offload_param.device ==
        OffloadDevice::cpu);
  CHECK(has(refused(R"({"fsdp": "full_shard", "lr_scheduler_type": "linear"})", "a.json"),
            "lr_scheduler_type: is not read"));
}

TEST_CASE("numbers of YAML 1.1") {
  if (!reads_yaml()) return;
  const struct {
    const char *text, *value;
  } cases[] = {{"500_000_000", "500000000"},
               {"+5", "5"},
               {"-1_0.5", "-10.5"},
               {"0x1F", "31"},
               {"0b101", "5"},
               {"017", "15"},
               {"1:30", "90"},
               {"1:00:01", "3601"},
               {"5e8", "5e8"},
               {".5", ".5"},
               {"-0", "-0"},
               {"1_000.5e-3", "1000.5e-3"}};
  for (const auto& c : cases) {
    CAPTURE(c.text);
    const Document document = parse_yaml("a: " + std::string(c.text));
    REQUIRE(document.root.members.size() == 1);
    CHECK(document.root.members[0].value.kind == Node::Kind::number);
    CHECK(document.root.members[0].value.text == c.value);
  }
  for (const char* text : {"_5", "0x", "10.0.0.1", "1:90", "1e", "x_1", "--5", "nan", "1-2", "."}) {
    CAPTURE(text);
    const Document document = parse_yaml("a: " + std::string(text));
    REQUIRE(document.root.members.size() == 1);
    CHECK(document.root.members[0].value.kind == Node::Kind::string);
  }
  const Config config = load(
                            "zero_optimization: {stage: 2, reduce_bucket_size: 500_000}\n"
                            "steps_per_print: .inf\n",
                            "ds.yaml")
                            .config;
  CHECK(config.zero_optimization.reduce_bucket_size == 500'000);
  CHECK(config.steps_per_print == 0);
}

TEST_CASE("YAML: types, places, and unsupported forms") {
  if (!reads_yaml()) return;
  const Document document = parse_yaml("a: 1e-5\nb: [yes, 'no', ~, x y]\nc:\n  d: -3\n");
  REQUIRE(document.readable);
  const auto& members = document.root.members;
  REQUIRE(members.size() == 3);
  CHECK(members[0].value.kind == Node::Kind::number);
  CHECK(members[1].value.members[0].value.kind == Node::Kind::boolean);
  CHECK(members[1].value.members[1].value.kind == Node::Kind::string);
  CHECK(members[1].value.members[2].value.kind == Node::Kind::null);
  CHECK(members[1].value.members[3].value.text == "x y");
  CHECK(members[2].value.members[0].position.line == 4);
  CHECK(members[2].value.members[0].position.column == 3);

  CHECK(load("train_batch_size: 8\nzero_optimization: {stage: 2}\n", "ds.yml")
            .config.zero_optimization.stage == 2);
  // If the file's name does not decide the format, the text does.
  for (const char* name : {"config", "", "accelerate"}) {
    CAPTURE(name);
    CHECK(load("# mine\nzero_optimization:\n  stage: 2\n", name).config.zero_optimization.stage ==
          2);
    CHECK(load("\xef\xbb\xbf{# mine\nzero_optimization: {stage: 2,},}", name)
              .config.zero_optimization.stage == 2);
    CHECK(load("/* mine */ {\"seed\": 2}", name).config.seed == 2);
  }
  CHECK(load("seed: 2, steps_per_print: 3", "ds.json").config.seed == 2);  // Hjson
  CHECK(has(refused("zero_optimization:\n  stage: 9\n", "config"),
            "config:2:10: zero_optimization.stage"));
  CHECK(has(refused("a: &x [1]\nb: *x\n"), "accelerate.yaml:2:4: aliases"));
  CHECK(has(refused("seed: 1\nseed: 2\n"), "duplicate key \"seed\", first given in line 1"));
  CHECK(has(refused("a: [1\nb: }"), "not valid YAML"));
  CHECK(has(refused(""), "is empty"));
  CHECK(has(refused("? [1]\n: 2\n"), "a key must be a plain name"));
  CHECK(has(refused(std::string(40, '[')), "accelerate.yaml:1:"));
  CHECK(has(refused(std::string(1'000'000, '[')), "more than 10000"));
  CHECK(has(refused(std::string((1 << 20) + 1, ' ')), "larger than 1 MiB"));
  CHECK(has(refused("- 1\n- 2\n"), "a config must be a JSON object"));
}

TEST_CASE("a YAML file is one document of UTF-8") {
  if (!reads_yaml()) return;
  const std::string batch = "train_batch_size: 4\n";
  for (const char* more : {"---\nzero_optimization: {stage: 3}\n", "---\n", "...\nseed: 1\n",
                           "...\n---\nseed: 1\n", "--- {seed: 1}"}) {
    CAPTURE(more);
    CHECK(has(refused(batch + more), "after the first one"));
  }
  for (const char* text : {"{seed: 1} seed: 2", "{seed: 1}\nstages: 3\n", "[1]\n[2]\n", "{a: 1} ]",
                           "a: 1\n...\n}\n"}) {
    CAPTURE(text);
    CHECK(!parse_yaml(text).readable);
  }
  for (const char* text :
       {"---\nseed: 1\n", "%YAML 1.1\n---\nseed: 1\n...\n", "seed: 1\n...\n# end\n"}) {
    CAPTURE(text);
    CHECK(load(text, "ds.yaml").config.seed == 1);
  }
  CHECK(has(refused("a: 1\nb: \xff\n"), "accelerate.yaml:2:4: a byte that is not UTF-8"));
  CHECK(has(refused("a: \xc0\x80\n"), "not UTF-8"));
  CHECK(has(refused(std::string("a: 1\0b", 6)), "NUL"));
}
