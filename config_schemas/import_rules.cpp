#include <algorithm>
#include <charconv>

#include "config_schemas/importer.h"
#include "config_schemas/values.h"

namespace zero::config_schemas {
namespace {

constexpr std::string_view launcher = "the launcher's: zero run and mpirun decide";
constexpr std::string_view units = "no effect: the program declares its units";
constexpr std::string_view always = "no effect: always so";
constexpr std::string_view program = "the training program's: it is not read here";

template <const char* const& path>
std::string copy(Importer& import, const Node& node) {
  return import.set(path, node);
}

std::string refuse_if_given(Importer& import, const Node& node) {
  const bool empty = node.kind == Node::Kind::null || truth_of(node) == false ||
                     (node.kind == Node::Kind::object && node.members.empty()) ||
                     (node.kind == Node::Kind::array && node.members.empty());
  if (!empty) import.refuse(node, shown(node) + " is not supported by this version; remove it");
  return "";
}

std::optional<std::int64_t> count_of(const Node& node) {
  std::int64_t value = 0;
  const char* end_of_text = node.text.data() + node.text.size();
  const auto [end, error] = std::from_chars(node.text.data(), end_of_text, value);
  if (error != std::errc() || end != end_of_text) return std::nullopt;
  return value;
}

bool as_truth(Importer& import, const Node& node) {
  const auto truth = truth_of(node);
  if (!truth) import.refuse(node, shown(node) + " is neither true nor false");
  return truth.value_or(false);
}

std::string distributed_type(Importer& import, const Node& node) {
  const std::string type = upper_case(node.text);
  if (type == "FSDP" || type == "DEEPSPEED") return "";
  if (type == "NO" || type.starts_with("MULTI_"))
    return import.set_number("zero_optimization.stage", node, 0) + " (data parallel)";
  import.refuse(node, shown(node) +
                          " is not known; allowed: FSDP, DEEPSPEED, MULTI_CPU, "
                          "MULTI_GPU, NO");
  return "";
}

std::string mixed_precision(Importer& import, const Node& node) {
  const std::string dtype = lower_case(node.text);
  import.result.bf16 = dtype == "bf16";
  import.result.fp16 = dtype == "fp16";
  if (dtype == "bf16") return import.set_truth("bf16.enabled", node, true);
  if (dtype == "fp16") return import.set_truth("fp16.enabled", node, true);
  if (dtype != "no" && truth_of(node) != false)
    import.refuse(node, shown(node) + " is not supported by this version; allowed: no, bf16, fp16");
  return "fp32";
}

// The key of files written before mixed_precision existed.
std::string old_fp16(Importer& import, const Node& node) {
  if (!as_truth(import, node)) return "fp32";
  import.result.fp16 = true;
  return import.set_truth("fp16.enabled", node, true);
}

std::string processes(Importer& import, const Node& node) {
  import.processes = std::max<std::int64_t>(0, count_of(node).value_or(0));
  return "start this many ranks: zero run -n " + printable(node.text);
}

// Returns the size of an axis of parallelism_config; 1 means none.
std::int64_t axis(Importer& import, const Node& node) {
  const std::int64_t size = node.kind == Node::Kind::null ? 1 : count_of(node).value_or(0);
  if (size >= 1 && size <= most_ranks) return size;
  import.refuse(node, shown(node) + " is not a number of ranks, 1 or more");
  return 1;
}

template <int which>
std::string data_axis(Importer& import, const Node& node) {
  const std::int64_t size = axis(import, node);
  (which == 0 ? import.mesh.replicas : import.mesh.shards) = size;
  import.mesh.at = node.position;
  if (import.fsdp.seen) return "";
  return size == 1 ? "as always" : "no effect: acts with FSDP only";
}

std::string other_axis(Importer& import, const Node& node) {
  if (axis(import, node) > 1)
    import.refuse(node, shown(node) +
                            " is not supported: every rank is a data-parallel rank, and counts as "
                            "one in the batch; write 1");
  return "as always";
}

std::string strategy(Importer& import, const Node& node) {
  static constexpr const char* by_number[] = {"",         "FULL_SHARD",   "SHARD_GRAD_OP",
                                              "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
  std::string name = upper_case(node.text);
  if (name.starts_with('_')) name.erase(0, 1);
  if (name.size() == 1 && name[0] >= '1' && name[0] <= '5') name = by_number[name[0] - '0'];
  import.fsdp.strategy = name;
  import.fsdp.at = node.position;
  import.fsdp.key = import.key;
  if (name == "FULL_SHARD") return "zero_optimization.stage 3";
  if (name == "SHARD_GRAD_OP")
    return "zero_optimization.stage 3, zero_core.reshard_after_forward false";
  if (name == "NO_SHARD") return "zero_optimization.stage 0";
  const std::string groups = "zero_optimization.stage 3, zero_core.shard_group_size node";
  if (name == "HYBRID_SHARD") return groups;
  if (name == "HYBRID_SHARD_ZERO2") return groups + ", zero_core.reshard_after_forward false";
  import.refuse(node, shown(node) +
                          " is not known; allowed: FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, "
                          "HYBRID_SHARD, HYBRID_SHARD_ZERO2");
  return "";
}

std::string reshard(Importer& import, const Node& node) {
  const bool number = node.kind == Node::Kind::number;
  const auto truth = number ? std::nullopt : truth_of(node);
  if (truth || number) {
    import.fsdp.at = node.position;
    import.fsdp.key = import.key;
  }
  if (truth) {
    import.fsdp.reshard = *truth;
    return std::string("zero_optimization.stage 3, zero_core.reshard_after_forward ") +
           (*truth ? "true" : "false");
  }
  if (!number) return strategy(import, node);  // Accelerate takes version 1's names here
  import.fsdp.reshard = true;
  return "zero_optimization.stage 3, " +
         import.set("zero_optimization.zero_hpz_partition_size", node);
}

std::string fsdp_version(Importer& import, const Node& node) {
  if (node.text != "1" && node.text != "2")
    import.refuse(node, shown(node) + " is not known; allowed: 1, 2");
  return "names of version " + printable(node.text);
}

std::string backward_prefetch(Importer& import, const Node& node) {
  const std::string when = upper_case(node.text);
  if (when == "BACKWARD_PRE") return "as always: the next unit is gathered meanwhile";
  if (when != "BACKWARD_POST" && when != "NO_PREFETCH" && node.kind != Node::Kind::null)
    import.refuse(node, shown(node) +
                            " is not known; allowed: BACKWARD_PRE, BACKWARD_POST, "
                            "NO_PREFETCH");
  import.fsdp.prefetch = false;
  return "zero_optimization.stage3_prefetch_bucket_size 0: one unit at a time";
}

std::string offload_params(Importer& import, const Node& node) {
  if (!as_truth(import, node)) return "parameters and states stay in place";
  import.set_text("zero_optimization.offload_param.device", node, "cpu");
  return import.set_text("zero_optimization.offload_optimizer.device", node, "cpu") +
         ", zero_optimization.offload_param.device cpu";
}

// Reads "full_shard auto_wrap offload", the same words as a list, or a truth value.
std::string trainer_fsdp(Importer& import, const Node& node) {
  std::string words = node.text;
  for (const Member& member : node.members) words += " " + member.value.text;
  if (node.kind == Node::Kind::boolean) return node.text == "true" ? "FSDP" : "off";
  std::string effect;
  for (std::size_t begin = 0; begin < words.size();) {
    const std::size_t end = std::min(words.find(' ', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty() || word == "auto_wrap") continue;
    const Node value{Node::Kind::string, node.position, word == "offload" ? "true" : word, {}};
    effect += (effect.empty() ? "" : ", ") +
              (word == "offload" ? offload_params(import, value) : strategy(import, value));
  }
  return effect;
}

std::string plugin_file(Importer& import, const Node& node) {
  if (node.kind != Node::Kind::string || node.text.empty())
    import.refuse(node, shown(node) + " is not the name of a file");
  import.result.config_file = node.text;
  return "read instead";
}

std::string trainer_deepspeed(Importer& import, const Node& node) {
  if (node.kind != Node::Kind::object) return plugin_file(import, node);
  import.result.config = node;
  return "read as it is";
}

std::string plugin_stage(Importer& import, const Node& node) {
  return import.set("zero_optimization.stage", node);
}

template <int which>
std::string device(Importer& import, const Node& node) {
  const std::string section = which == 0 ? "offload_optimizer" : "offload_param";
  if (node.kind == Node::Kind::null) return "none";
  return import.set("zero_optimization." + section + ".device", node);
}

// Accelerate writes "none" if given no path.
template <int which>
std::string nvme_path(Importer& import, const Node& node) {
  const std::string section = which == 0 ? "offload_optimizer" : "offload_param";
  if (node.kind == Node::Kind::null || node.text == "none") return "none";
  return import.set("zero_optimization." + section + ".nvme_path", node);
}

constexpr const char* clipping_path = "gradient_clipping";
constexpr const char* steps_path = "gradient_accumulation_steps";
constexpr const char* micro_path = "train_micro_batch_size_per_gpu";
constexpr const char* seed_path = "seed";
constexpr const char* rate_path = "optimizer.params.lr";
constexpr const char* decay_path = "optimizer.params.weight_decay";
constexpr const char* epsilon_path = "optimizer.params.eps";
constexpr const char* bf16_path = "bf16.enabled";
constexpr const char* fp16_path = "fp16.enabled";

std::vector<Rule> accelerate_rules() {
  std::vector<Rule> rules = {
      {Scope::accelerate, "distributed_type", "FSDP, DEEPSPEED, or stage 0", distributed_type},
      {Scope::accelerate, "mixed_precision", "bf16.enabled or fp16.enabled", mixed_precision},
      {Scope::accelerate, "num_processes", "the number of ranks to start", processes},
      {Scope::accelerate, "megatron_lm_config", "refused", refuse_if_given},
      {Scope::accelerate, "fp16", "fp16.enabled", old_fp16},
      {Scope::accelerate, "fp8_config", "refused", refuse_if_given},
  };
  for (const auto key : {"compute_environment",
                         "debug",
                         "downcast_bf16",
                         "machine_rank",
                         "main_process_ip",
                         "main_process_port",
                         "main_training_function",
                         "num_machines",
                         "rdzv_backend",
                         "same_network",
                         "tpu_env",
                         "tpu_name",
                         "tpu_zone",
                         "tpu_vm",
                         "tpu_use_cluster",
                         "tpu_use_sudo",
                         "use_cpu",
                         "gpu_ids",
                         "enable_cpu_affinity",
                         "command_file",
                         "commands",
                         "mpirun_config",
                         "ipex_config",
                         "dynamo_config",
                         "dynamo_backend"})
    rules.push_back({Scope::accelerate, key, launcher});
  return rules;
}

std::vector<Rule> fsdp_rules() {
  return {
      {Scope::fsdp, "fsdp_version", "chooses between the names of versions 1 and 2", fsdp_version},
      {Scope::fsdp, "fsdp_sharding_strategy",
       "FULL_SHARD: stage 3; SHARD_GRAD_OP: stage 3 with zero_core.reshard_after_forward false; "
       "NO_SHARD: stage 0; HYBRID_SHARD and HYBRID_SHARD_ZERO2: the first two with "
       "zero_core.shard_group_size node",
       strategy},
      {Scope::fsdp, "fsdp_reshard_after_forward",
       "stage 3 with zero_core.reshard_after_forward; a number: zero_hpz_partition_size", reshard},
      {Scope::fsdp, "fsdp_backward_prefetch",
       "BACKWARD_PRE: as always; BACKWARD_POST, NO_PREFETCH: stage3_prefetch_bucket_size 0",
       backward_prefetch},
      {Scope::fsdp, "fsdp_backward_prefetch_policy", "", backward_prefetch,
       "fsdp_backward_prefetch"},
      {Scope::fsdp, "fsdp_offload_params", "offload_optimizer.device and offload_param.device cpu",
       offload_params},
      {Scope::fsdp, "fsdp_cpu_offload", "the same, under the Trainer's name", offload_params},
      {Scope::fsdp, "fsdp_auto_wrap_policy", units},
      {Scope::fsdp, "fsdp_transformer_layer_cls_to_wrap", units},
      {Scope::fsdp, "fsdp_transformer_cls_names_to_wrap", units},
      {Scope::fsdp, "fsdp_min_num_params", units},
      {Scope::fsdp, "fsdp_forward_prefetch", always},
      {Scope::fsdp, "fsdp_limit_all_gathers", always},
      {Scope::fsdp, "fsdp_use_orig_params", always},
      {Scope::fsdp, "fsdp_sync_module_states", "no effect: ranks always start alike"},
      {Scope::fsdp, "fsdp_cpu_ram_efficient_loading", "no effect: weights are always streamed"},
      {Scope::fsdp, "fsdp_state_dict_type", "no effect: a saved model is always whole"},
      {Scope::fsdp, "fsdp_activation_checkpointing",
       "no effect: the model decides which results it recomputes"},
      {Scope::fsdp, "fsdp_activation_checkpointing_offload",
       "no effect: the model decides which results it recomputes, and stores the inputs itself"},
      {Scope::fsdp, "fsdp_ignored_modules", "refused", refuse_if_given},
      {Scope::fsdp, "fsdp_ignored_params", "refused", refuse_if_given},
      {Scope::fsdp, "fsdp_mixed_precision_policy", "refused", refuse_if_given},
      {Scope::fsdp, "fsdp_xla", "refused", refuse_if_given},
      {Scope::fsdp, "fsdp_xla_fsdp_v2", "refused", refuse_if_given},
      {Scope::fsdp, "fsdp_xla_fsdp_settings", "refused", refuse_if_given},
      {Scope::fsdp, "fsdp_xla_fsdp_grad_ckpt", "refused", refuse_if_given},
  };
}

std::vector<Rule> parallelism_rules() {
  constexpr std::string_view replicas =
      "above 1, with FSDP: zero_core.shard_group_size is dp_shard_size (HYBRID_SHARD)";
  constexpr std::string_view shards =
      "with FSDP: the ranks of a shard group; with one of them, all";
  constexpr std::string_view refused = "refused above 1";
  constexpr std::string_view other = "no effect: acts with the axes that are refused";
  constexpr Scope scope = Scope::parallelism;
  std::vector<Rule> rules = {
      {scope, "parallelism_config_dp_replicate_size", replicas, data_axis<0>},
      {scope, "parallelism_config_dp_shard_size", shards, data_axis<1>},
      {scope, "parallelism_config_tp_size", refused, other_axis},
      {scope, "parallelism_config_cp_size", refused, other_axis},
      {scope, "parallelism_config_sp_size", refused, other_axis}};
  for (const auto key :
       {"parallelism_config_cp_backend", "parallelism_config_cp_comm_strategy",
        "parallelism_config_sp_backend", "parallelism_config_sp_seq_length",
        "parallelism_config_sp_seq_length_is_variable", "parallelism_config_sp_attn_implementation",
        "parallelism_config_tp_handler", "parallelism_config_cp_handler",
        "parallelism_config_sp_handler"})
    rules.push_back({scope, key, other});
  return rules;
}

std::vector<Rule> plugin_rules() {
  return {
      {Scope::plugin, "deepspeed_config_file", "this file is read instead", plugin_file},
      {Scope::plugin, "zero_stage", "zero_optimization.stage", plugin_stage},
      {Scope::plugin, "gradient_accumulation_steps", steps_path, copy<steps_path>},
      {Scope::plugin, "gradient_clipping", clipping_path, copy<clipping_path>},
      {Scope::plugin, "offload_optimizer_device", "zero_optimization.offload_optimizer.device",
       device<0>},
      {Scope::plugin, "offload_param_device", "zero_optimization.offload_param.device", device<1>},
      {Scope::plugin, "offload_optimizer_nvme_path",
       "zero_optimization.offload_optimizer.nvme_path", nvme_path<0>},
      {Scope::plugin, "offload_param_nvme_path", "zero_optimization.offload_param.nvme_path",
       nvme_path<1>},
      {Scope::plugin, "zero3_init_flag", always},
      {Scope::plugin, "zero3_save_16bit_model", "no effect: a saved model is always whole"},
      {Scope::plugin, "deepspeed_multinode_launcher", launcher},
      {Scope::plugin, "deepspeed_hostfile", launcher},
      {Scope::plugin, "deepspeed_exclusion_filter", launcher},
      {Scope::plugin, "deepspeed_inclusion_filter", launcher},
      {Scope::plugin, "deepspeed_moe_layer_cls_names", "refused", refuse_if_given},
  };
}

std::vector<Rule> trainer_rules() {
  std::vector<Rule> rules = {
      {Scope::trainer, "fsdp", "words: a strategy as above, offload; auto_wrap has no effect",
       trainer_fsdp},
      {Scope::trainer, "deepspeed", "read as it is, or the file that it names", trainer_deepspeed},
      {Scope::trainer, "fsdp_transformer_layer_cls_to_wrap", units},
      {Scope::trainer, "fsdp_min_num_params", units},
      {Scope::trainer, "bf16", bf16_path, copy<bf16_path>},
      {Scope::trainer, "fp16", fp16_path, copy<fp16_path>},
      {Scope::trainer, "per_device_train_batch_size", micro_path, copy<micro_path>},
      {Scope::trainer, "gradient_accumulation_steps", steps_path, copy<steps_path>},
      {Scope::trainer, "max_grad_norm", clipping_path, copy<clipping_path>},
      {Scope::trainer, "learning_rate", rate_path, copy<rate_path>},
      {Scope::trainer, "weight_decay", decay_path, copy<decay_path>},
      {Scope::trainer, "adam_epsilon", epsilon_path, copy<epsilon_path>},
      {Scope::trainer, "seed", seed_path, copy<seed_path>},
  };
  // These keys change no step of the optimizer. Keys that do are reported instead, because they
  // must not be left to the program silently.
  for (const auto key : {"output_dir",
                         "run_name",
                         "report_to",
                         "num_train_epochs",
                         "max_steps",
                         "per_device_eval_batch_size",
                         "eval_strategy",
                         "eval_steps",
                         "save_strategy",
                         "save_steps",
                         "save_total_limit",
                         "save_safetensors",
                         "logging_dir",
                         "logging_strategy",
                         "logging_steps",
                         "logging_first_step",
                         "log_level",
                         "disable_tqdm",
                         "do_train",
                         "do_eval",
                         "do_predict",
                         "overwrite_output_dir",
                         "resume_from_checkpoint",
                         "dataloader_num_workers",
                         "dataloader_pin_memory",
                         "remove_unused_columns",
                         "push_to_hub",
                         "hub_model_id"})
    rules.push_back({Scope::trainer, key, program});
  return rules;
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> table = [] {
    std::vector<Rule> result;
    for (auto part : {accelerate_rules, fsdp_rules, parallelism_rules, plugin_rules, trainer_rules})
      for (const Rule& rule : part()) result.push_back(rule);
    return result;
  }();
  return table;
}

std::vector<ImportRule> import_rules() {
  std::vector<ImportRule> result;
  for (const Rule& rule : rules())
    result.push_back({rule.key, rule.today.empty()
                                    ? std::string(rule.effect)
                                    : "an old name of `" + std::string(rule.today) + "`"});
  return result;
}

}  // namespace zero::config_schemas
