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
  CHECK(effect(loaded, "num_processes") == "start so many ranks: zero run -n 8");
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

TEST_CASE("resharding to so many ranks is a second copy that they share") {
  const Config config =
      load(with_fsdp(R"("fsdp_version": 2, "fsdp_reshard_after_forward": 8)"), "a.json").config;
  CHECK(config.zero_optimization.stage == 3);
  CHECK(config.zero_optimization.hpz_partition_size == 8);
}

TEST_CASE("what cannot be honoured is refused, by the user's own key and place") {
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

TEST_CASE("a named DeepSpeed file is found beside the Accelerate file; its auto follows") {
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

TEST_CASE("YAML: types, places, and what is not read") {
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
