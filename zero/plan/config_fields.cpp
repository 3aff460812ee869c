#include "zero/plan/config_fields.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <type_traits>

#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/text.h"

namespace zero {
namespace detail {
namespace {

using Scale = optim::LossScaleOptions;
using Rule = optim::OptimizerOptions;
using Rate = optim::SchedulerOptions;
using States = OffloadOptimizerOptions;
using Params = OffloadParamOptions;
using Group = ParamGroupOptions;
using Files = CheckpointOptions;
using Elastic = ElasticityOptions;

// The sections that occur once in a config: each has a distinct type.
auto sections(Config& config) {
  ZeroOptions& zero = config.zero_optimization;
  return std::tie(config, config.batch, config.batch.elasticity, zero, zero.offload_optimizer,
                  zero.offload_param, config.zero_core, config.zero_core.wire, config.optimizer,
                  config.scheduler, config.loss_scale, config.checkpoint, config.aio);
}

template <class Section, class T>
Section& section_with(T Section::*, Config& config) {
  return std::get<Section&>(sections(config));
}

// A member of a section, or the member reached from there through `further`.
template <auto member, auto... further>
FieldRef at(Config& config, const std::string&) {
  return &((section_with(member, config).*member).*....*further);
}

template <auto member>
FieldRef in_group(Config& config, const std::string& group) {
  return &(config.zero_core.param_groups[group].*member);
}

FieldRef betas(Config& config, const std::string&) {
  return Pair{&config.optimizer.beta1, &config.optimizer.beta2};
}

FieldRef reduce_groups(Config& config, const std::string&) {
  return GroupSizes{&config.zero_core.reduce_group_size, &config.zero_core.wider_reduce_groups};
}

using Names = const std::string_view[];
constexpr std::span<const std::string_view> any;
constexpr Names every = {"Adam", "AdamW", "Lamb", "Lion", "Adagrad", "SGD", "Muon", "Adafactor"};
constexpr Names with_betas = {"Adam", "AdamW", "Lamb", "Lion", "Muon"};
constexpr Names with_eps = {"Adam", "AdamW", "Lamb", "Adagrad", "Muon"};
constexpr Names with_momentum = {"SGD", "Muon"};
constexpr Names adam = {"Adam", "AdamW", "Muon"};
constexpr Names corrected = {"Adam", "AdamW", "Lamb"};
constexpr Names sgd = {"SGD"}, adagrad = {"Adagrad"}, lamb = {"Lamb"}, muon = {"Muon"};
constexpr Names adafactor = {"Adafactor"};
constexpr Names schedules = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest",
                             "OneCycle"};
constexpr Names warmup = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
constexpr Names linear = {"WarmupLR", "WarmupDecayLR"};
constexpr Names ending = {"WarmupDecayLR", "WarmupCosineLR"};
constexpr Names cosine = {"WarmupCosineLR"}, range_test = {"LRRangeTest"}, cycle = {"OneCycle"};

constexpr ConfigField fields[] = {
    {"train_batch_size", at<&BatchOptions::train_batch_size>, any, not_set},
    {"train_micro_batch_size_per_gpu", at<&BatchOptions::train_micro_batch_size_per_gpu>, any,
     not_set},
    {"gradient_accumulation_steps", at<&BatchOptions::gradient_accumulation_steps>, any, not_set},
    {"elasticity.enabled", at<&Elastic::enabled>},
    {"elasticity.max_train_batch_size", at<&Elastic::max_train_batch_size>, any, not_set},
    {"elasticity.micro_batch_sizes", at<&Elastic::micro_batch_sizes>},
    {"elasticity.min_gpus", at<&Elastic::min_gpus>},
    {"elasticity.max_gpus", at<&Elastic::max_gpus>},
    {"elasticity.num_gpus_per_node", at<&Elastic::num_gpus_per_node>},
    {"elasticity.version", at<&Elastic::version>},
    {"elasticity.prefer_larger_batch", at<&Elastic::prefer_larger_batch>},
    {"elasticity.ignore_non_elastic_batch_info", at<&Elastic::ignore_non_elastic_batch_info>},
    {"gradient_clipping", at<&Config::gradient_clipping>},
    {"steps_per_print", at<&Config::steps_per_print>},
    {"seed", at<&Config::seed>},
    {"prescale_gradients", at<&Config::prescale_gradients>},
    {"gradient_predivide_factor", at<&Config::gradient_predivide_factor>},
    {"gradient_allreduce_op", at<&Config::gradient_allreduce_op>},
    {"communication_data_type", at<&Config::communication_data_type>},
    {"data_types.grad_accum_dtype", at<&Config::grad_accum_dtype>},
    {"data_types.buffer_dtype", at<&Config::buffer_dtype>},
    {"dataloader_drop_last", at<&Config::dataloader_drop_last>},
    {"managed_gradient_accumulation", at<&Config::managed_gradient_accumulation>},
    {"torch_autocast.enabled", at<&Config::torch_autocast, &TorchAutocastOptions::enabled>},
    {"torch_autocast.dtype", at<&Config::torch_autocast, &TorchAutocastOptions::dtype>},
    {"fp16.enabled", at<&Config::fp16_enabled>},
    {"fp16.loss_scale", at<&Scale::loss_scale>},
    {"fp16.initial_scale_power", at<&Scale::initial_scale_power>},
    {"fp16.loss_scale_window", at<&Scale::loss_scale_window>},
    {"fp16.hysteresis", at<&Scale::hysteresis>},
    {"fp16.consecutive_hysteresis", at<&Scale::consecutive_hysteresis>},
    {"fp16.min_loss_scale", at<&Scale::min_loss_scale>},
    {"fp16.fp16_master_weights_and_grads", at<&Config::fp16_master_weights_and_grads>},
    {"bf16.enabled", at<&Config::bf16_enabled>},
    {"bf16.bf16_master_weights_and_grads", at<&Config::bf16_master_weights_and_grads>},
    {"bf16.bf16_optimizer_states", at<&Config::bf16_optimizer_states>},
    {"checkpoint.use_node_local_storage", at<&Files::use_node_local_storage>},
    {"checkpoint.writer.decoupled", at<&Files::decoupled>},
    {"tensorboard.enabled", at<&Config::tensorboard, &MonitorOptions::enabled>},
    {"tensorboard.output_path", at<&Config::tensorboard, &MonitorOptions::output_path>},
    {"tensorboard.job_name", at<&Config::tensorboard, &MonitorOptions::job_name>},
    {"csv_monitor.enabled", at<&Config::csv_monitor, &MonitorOptions::enabled>},
    {"csv_monitor.output_path", at<&Config::csv_monitor, &MonitorOptions::output_path>},
    {"csv_monitor.job_name", at<&Config::csv_monitor, &MonitorOptions::job_name>},
    {"wall_clock_breakdown", at<&Config::wall_clock_breakdown>},
    {"memory_breakdown", at<&Config::memory_breakdown>},
    {"dump_state", at<&Config::dump_state>},
    {"comms_logger.enabled", at<&Config::comms_logger>},
    {"flops_profiler.enabled", at<&Config::flops_profiler, &FlopsProfilerOptions::enabled>},
    {"flops_profiler.profile_step",
     at<&Config::flops_profiler, &FlopsProfilerOptions::profile_step>},
    {"flops_profiler.output_file", at<&Config::flops_profiler, &FlopsProfilerOptions::output_file>},
    {"zero_optimization.stage", at<&ZeroOptions::stage>},
    {"zero_optimization.reduce_bucket_size", at<&ZeroOptions::reduce_bucket_size>},
    {"zero_optimization.allgather_bucket_size", at<&ZeroOptions::allgather_bucket_size>},
    {"zero_optimization.stage3_prefetch_bucket_size", at<&ZeroOptions::prefetch_bucket_size>},
    {"zero_optimization.stage3_max_live_parameters", at<&ZeroOptions::max_live_parameters>},
    {"zero_optimization.zero_hpz_partition_size", at<&ZeroOptions::hpz_partition_size>},
    {"zero_optimization.zero_quantized_weights", at<&ZeroOptions::quantized_weights>},
    {"zero_optimization.zero_quantized_gradients", at<&ZeroOptions::quantized_gradients>},
    {"zero_optimization.zero_quantized_nontrainable_weights",
     at<&ZeroOptions::quantized_nontrainable_weights>},
    {"zero_optimization.mics_shard_size", at<&ZeroOptions::mics_shard_size>},
    {"zero_optimization.stage3_max_reuse_distance", at<&ZeroOptions::max_reuse_distance>},
    {"zero_optimization.stage3_param_persistence_threshold",
     at<&ZeroOptions::param_persistence_threshold>},
    {"zero_optimization.stage3_model_persistence_threshold",
     at<&ZeroOptions::model_persistence_threshold>},
    {"zero_optimization.offload_optimizer.device", at<&States::device>},
    {"zero_optimization.offload_optimizer.nvme_path", at<&States::nvme_path>},
    {"zero_optimization.offload_optimizer.buffer_count", at<&States::buffer_count>},
    {"zero_optimization.offload_optimizer.pin_memory", at<&States::pin_memory>},
    {"zero_optimization.offload_optimizer.pipeline_read", at<&States::pipeline_read>},
    {"zero_optimization.offload_optimizer.pipeline_write", at<&States::pipeline_write>},
    {"zero_optimization.offload_optimizer.fast_init", at<&States::fast_init>},
    {"zero_optimization.offload_optimizer.ratio", at<&States::ratio>},
    {"zero_optimization.offload_param.device", at<&Params::device>},
    {"zero_optimization.offload_param.nvme_path", at<&Params::nvme_path>},
    {"zero_optimization.offload_param.buffer_count", at<&Params::buffer_count>},
    {"zero_optimization.offload_param.buffer_size", at<&Params::buffer_size>},
    {"zero_optimization.offload_param.max_in_cpu", at<&Params::max_in_cpu>},
    {"aio.block_size", at<&AioOptions::block_size>},
    {"aio.queue_depth", at<&AioOptions::queue_depth>},
    {"aio.intra_op_parallelism", at<&AioOptions::intra_op_parallelism>},
    {"optimizer.type", at<&Rule::type>},
    {"optimizer.params.lr", at<&Rule::learning_rate>, every},
    {"optimizer.params.weight_decay", at<&Rule::weight_decay>, every},
    {"optimizer.params.betas", betas, with_betas},
    {"optimizer.params.eps", at<&Rule::epsilon>, with_eps},
    {"optimizer.params.adam_w_mode", at<&Rule::adam_w_mode>, adam},
    {"optimizer.params.bias_correction", at<&Rule::bias_correction>, corrected},
    {"optimizer.params.momentum", at<&Rule::momentum>, with_momentum},
    {"optimizer.params.dampening", at<&Rule::dampening>, sgd},
    {"optimizer.params.nesterov", at<&Rule::nesterov>, sgd},
    {"optimizer.params.max_coeff", at<&Rule::max_coeff>, lamb},
    {"optimizer.params.min_coeff", at<&Rule::min_coeff>, lamb},
    {"optimizer.params.eps_inside_sqrt", at<&Rule::eps_inside_sqrt>, lamb},
    {"optimizer.params.lr_decay", at<&Rule::lr_decay>, adagrad},
    {"optimizer.params.initial_accumulator_value", at<&Rule::initial_accumulator_value>, adagrad},
    {"optimizer.params.muon_lr", at<&Rule::muon_lr>, muon},
    {"optimizer.params.adam_lr", at<&Rule::adam_lr>, muon},
    {"optimizer.params.ns_method", at<&Rule::ns_method>, muon},
    {"optimizer.params.beta2_decay", at<&Rule::beta2_decay>, adafactor},
    {"optimizer.params.eps1", at<&Rule::eps1>, adafactor},
    {"optimizer.params.eps2", at<&Rule::eps2>, adafactor},
    {"optimizer.params.d", at<&Rule::d>, adafactor},
    {"optimizer.params.transformers_form", at<&Rule::transformers_form>, adafactor},
    {"optimizer.params.scale_parameter", at<&Rule::scale_parameter>, adafactor},
    {"optimizer.params.relative_step", at<&Rule::relative_step>, adafactor},
    {"optimizer.params.warmup_init", at<&Rule::warmup_init>, adafactor},
    {"scheduler.type", at<&Rate::type>},
    {"scheduler.params.last_batch_iteration", at<&Rate::last_batch_iteration>, schedules},
    {"scheduler.params.warmup_min_lr", at<&Rate::warmup_min_lr>, linear},
    {"scheduler.params.warmup_max_lr", at<&Rate::warmup_max_lr>, linear},
    {"scheduler.params.warmup_num_steps", at<&Rate::warmup_num_steps>, warmup},
    {"scheduler.params.warmup_type", at<&Rate::warmup_type>, warmup},
    {"scheduler.params.total_num_steps", at<&Rate::total_num_steps>, ending, not_set},
    {"scheduler.params.warmup_min_ratio", at<&Rate::warmup_min_ratio>, cosine},
    {"scheduler.params.cos_min_ratio", at<&Rate::cos_min_ratio>, cosine},
    {"scheduler.params.lr_range_test_min_lr", at<&Rate::lr_range_test_min_lr>, range_test},
    {"scheduler.params.lr_range_test_step_size", at<&Rate::lr_range_test_step_size>, range_test},
    {"scheduler.params.lr_range_test_step_rate", at<&Rate::lr_range_test_step_rate>, range_test},
    {"scheduler.params.lr_range_test_staircase", at<&Rate::lr_range_test_staircase>, range_test},
    {"scheduler.params.cycle_min_lr", at<&Rate::cycle_min_lr>, cycle},
    {"scheduler.params.cycle_max_lr", at<&Rate::cycle_max_lr>, cycle},
    {"scheduler.params.decay_lr_rate", at<&Rate::decay_lr_rate>, cycle},
    {"scheduler.params.decay_step_size", at<&Rate::decay_step_size>, cycle},
    {"scheduler.params.cycle_first_step_size", at<&Rate::cycle_first_step_size>, cycle},
    {"scheduler.params.cycle_second_step_size", at<&Rate::cycle_second_step_size>, cycle},
    {"scheduler.params.cycle_first_stair_count", at<&Rate::cycle_first_stair_count>, cycle},
    {"scheduler.params.cycle_second_stair_count", at<&Rate::cycle_second_stair_count>, cycle},
    {"scheduler.params.cycle_momentum", at<&Rate::cycle_momentum>, cycle},
    {"scheduler.params.cycle_min_mom", at<&Rate::cycle_min_mom>, cycle},
    {"scheduler.params.cycle_max_mom", at<&Rate::cycle_max_mom>, cycle},
    {"scheduler.params.decay_mom_rate", at<&Rate::decay_mom_rate>, cycle},
    {"zero_core.reshard_after_forward", at<&CoreOptions::reshard_after_forward>},
    {"zero_core.gradient_sync", at<&CoreOptions::gradient_sync>},
    {"zero_core.reduce_group_size", reduce_groups, any, "node"},
    {"zero_core.inner_group_size", at<&CoreOptions::inner_group_size>},
    {"zero_core.shard_group_size", at<&CoreOptions::shard_group_size>, any, "node"},
    {"zero_core.optimizer_over_all_ranks", at<&CoreOptions::optimizer_over_all_ranks>},
    {"zero_core.deterministic", at<&CoreOptions::deterministic>},
    {"zero_core.rank_independent", at<&CoreOptions::rank_independent>},
    {"zero_core.rank_independent_group", at<&CoreOptions::rank_independent_group>},
    {"zero_core.recompute_every", at<&CoreOptions::recompute_every>},
    {"zero_core.time_limit_seconds", at<&CoreOptions::time_limit_seconds>},
    {"zero_core.deepspeed_defaults", at<&CoreOptions::deepspeed_defaults>},
    {"zero_core.on_save_error", at<&CoreOptions::on_save_error>},
    {"zero_core.preempt_grace_s", at<&CoreOptions::preempt_grace_s>},
    {"zero_core.async_staging_bytes", at<&CoreOptions::async_staging_bytes>},
    {"zero_core.allow_non_finite_weights", at<&CoreOptions::allow_non_finite_weights>},
    {"zero_core.round_initial_weights", at<&CoreOptions::round_initial_weights>},
    {"zero_core.resume_fallback", at<&CoreOptions::resume_fallback>},
    {"zero_core.peer_copies", at<&CoreOptions::peer_copies>},
    {"zero_core.peer_copies_every", at<&CoreOptions::peer_copies_every>},
    {"zero_core.verify_every", at<&CoreOptions::verify_every>, any, "0"},
    {"zero_core.verify_comm", at<&CoreOptions::verify_comm>},
    {"zero_core.start_line", at<&CoreOptions::start_line>},
    {"zero_core.trace", at<&CoreOptions::trace>},
    {"zero_core.json_lines", at<&CoreOptions::json_lines>},
    {"zero_core.prometheus", at<&CoreOptions::prometheus>},
    {"zero_core.wire.gather", at<&WireOptions::gather>},
    {"zero_core.wire.reduce", at<&WireOptions::reduce>},
    {"zero_core.wire.gather_inside", at<&WireOptions::gather_inside>},
    {"zero_core.wire.reduce_inside", at<&WireOptions::reduce_inside>},
    {"zero_core.wire.block_size", at<&WireOptions::block_size>},
    {"zero_core.wire.max_error", at<&WireOptions::max_error>},
    {"zero_core.offload_chunk_bytes", at<&CoreOptions::offload_chunk_bytes>},
    {"zero_core.offload_cache_bytes", at<&CoreOptions::offload_cache_bytes>},
    {"zero_core.offload_step", at<&CoreOptions::offload_step>},
    {"zero_core.param_groups.*.lr_scale", in_group<&Group::lr_scale>},
    {"zero_core.param_groups.*.lr", in_group<&Group::lr>},
    {"zero_core.param_groups.*.betas", in_group<&Group::betas>},
    {"zero_core.param_groups.*.eps", in_group<&Group::eps>},
    {"zero_core.param_groups.*.momentum", in_group<&Group::momentum>},
    {"zero_core.param_groups.*.weight_decay", in_group<&Group::weight_decay>},
};

std::string pair_text(double first, double second) {
  return "[" + shortest_text(first) + ", " + shortest_text(second) + "]";
}

struct Shower {
  std::string_view zero;

  std::string operator()(std::monostate) const { return not_set; }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::string* value) const {
    return value->empty() ? not_set : *value;
  }
  std::string operator()(const double* value) const { return shortest_text(*value); }
  template <std::integral T>
  std::string operator()(const T* value) const {
    return *value == 0 ? std::string(zero) : std::to_string(*value);
  }
  std::string operator()(const std::pair<double, double>* value) const {
    return pair_text(value->first, value->second);
  }
  std::string operator()(const Pair& value) const { return pair_text(*value[0], *value[1]); }
  std::string operator()(const GroupSizes& value) const {
    const std::string innermost = (*this)(value.innermost);
    if (value.wider->empty()) return innermost;
    std::string text = "[" + innermost;
    for (const int size : *value.wider) text += ", " + std::to_string(size);
    return text + "]";
  }
  std::string operator()(const std::vector<std::int64_t>* value) const {
    std::string text;
    for (const std::int64_t each : *value)
      text += (text.empty() ? "[" : ", ") + std::to_string(each);
    return text.empty() ? not_set : text + "]";
  }
  std::string operator()(const DType* value) const { return name_of(*value); }
  std::string operator()(const GradientSync* value) const {
    if (*value == GradientSync::automatic) return not_set;
    return *value == GradientSync::each ? "each" : *value == GradientSync::inner ? "inner" : "last";
  }
  std::string operator()(const OffloadDevice* value) const {
    return *value == OffloadDevice::nvme ? "nvme" : *value == OffloadDevice::cpu ? "cpu" : "none";
  }
  template <class T>
  std::string operator()(const std::optional<T>* value) const {
    return *value ? (*this)(&**value) : not_set;
  }
};

}  // namespace

std::span<const ConfigField> config_fields() {
  return fields;
}

const std::string& type_for(std::string_view path, const Config& config) {
  return path.starts_with("optimizer.") ? config.optimizer.type : config.scheduler.type;
}

bool applies(std::string_view path, std::span<const std::string_view> owners,
             const Config& config) {
  const std::string type = lower_case(type_for(path, config));
  return owners.empty() ||
         std::ranges::any_of(owners, [&](auto owner) { return lower_case(owner) == type; });
}

std::string text_of(const FieldRef& value, std::string_view zero) {
  return std::visit(Shower{zero}, value);
}

namespace {

// Calls `each` with every value's path, in which names of groups replace "*".
template <class Each>
void for_values(const Config& config, const Each& each) {
  Config copy = config;  // fields refer to mutable members
  for (const ConfigField& field : fields) {
    const auto star = field.path.find('*');
    if (star == std::string_view::npos) {
      each(std::string(field.path), field, field.of(copy, ""));
      continue;
    }
    for (const auto& [name, group] : config.zero_core.param_groups) {
      std::string path(field.path);
      path.replace(star, 1, printable(name));
      each(path, field, field.of(copy, name));
    }
  }
}

struct Finite {
  bool endless;  // a limit of time may be infinite

  bool is_fine(double value) const { return endless ? !std::isnan(value) : std::isfinite(value); }
  template <class T>
  bool operator()(const T& value) const {
    if constexpr (std::is_same_v<T, double*>)
      return is_fine(*value);
    else if constexpr (std::is_same_v<T, std::optional<double>*>)
      return !*value || is_fine(**value);
    else if constexpr (std::is_same_v<T, std::optional<std::pair<double, double>>*>)
      return !*value || (is_fine((*value)->first) && is_fine((*value)->second));
    else if constexpr (std::is_same_v<T, Pair>)
      return is_fine(*value[0]) && is_fine(*value[1]);
    else
      return true;
  }
};

}  // namespace

void check_finite(const Config& config) {
  for_values(config, [](const std::string& path, const ConfigField& field, const FieldRef& value) {
    if (!std::visit(Finite{path == "zero_core.time_limit_seconds"}, value))
      throw ConfigError(path + " is " + text_of(value, field.zero) + "; expected a finite number");
  });
}

}  // namespace detail

std::vector<std::string> keys_of_python(const Config& config) {
  std::vector<std::string> keys;
  if (config.torch_autocast.enabled) keys.push_back("torch_autocast.enabled");
  if (config.dataloader_drop_last) keys.push_back("dataloader_drop_last");
  if (!config.managed_gradient_accumulation) keys.push_back("managed_gradient_accumulation");
  return keys;
}

std::string describe(const Config& config) {
  std::map<std::string, std::string> lines;
  detail::for_values(config, [&](const std::string& path, const detail::ConfigField& field,
                                 const detail::FieldRef& value) {
    if (detail::applies(field.path, field.owners, config))
      lines[path] = detail::text_of(value, field.zero);
  });
  std::string text;
  for (const auto& [path, value] : lines) text += path + " = " + value + "\n";
  return text;
}

}  // namespace zero
