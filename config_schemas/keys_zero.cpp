// Rows of zero_optimization, without its offload sections.
#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

template <auto member>
Target in_zero(Config& config, const std::string&) {
  return &(config.zero_optimization.*member);
}

constexpr std::string_view python_only = "about Python modules, which there are none of here";
constexpr std::string_view loads_deepspeed = "acts when a DeepSpeed checkpoint is loaded";
constexpr std::string_view unquantized =
    "weights and gradients rest and travel unquantized, which is exact and takes more bytes";

std::vector<Key> honoured_rows() {
  return {
      {.path = "zero_optimization",
       .meaning = "what is sharded over the ranks, and in what pieces; the old form true is stage "
                  "1, false stage 0"},
      {.path = "zero_optimization.stage",
       .type = Type::integer,
       .range = {.low = 0, .high = 3},
       .target = in_zero<&ZeroOptions::stage>,
       .meaning = "0: nothing, 1: optimizer states, 2: and gradients, 3: and parameters"},
      {.path = "zero_optimization.reduce_bucket_size",
       .type = Type::integer,
       .range = positive_counts,
       .target = in_zero<&ZeroOptions::reduce_bucket_size>,
       .meaning = "elements per gradient reduction"},
      {.path = "zero_optimization.allgather_bucket_size",
       .type = Type::integer,
       .range = counts,
       .target = in_zero<&ZeroOptions::allgather_bucket_size>,
       .meaning = "elements per all-gather of parameters"},
      {.path = "zero_optimization.stage3_prefetch_bucket_size",
       .alias = "prefetch_bucket_size",
       .type = Type::integer,
       .range = counts,
       .target = in_zero<&ZeroOptions::prefetch_bucket_size>,
       .meaning = "stage 3: elements gathered ahead; not set: one unit"},
      {.path = "zero_optimization.stage3_max_live_parameters",
       .alias = "max_live_parameters",
       .type = Type::integer,
       .range = limits,
       .target = in_zero<&ZeroOptions::max_live_parameters>,
       .meaning = "stage 3: most gathered elements that prefetching may reach"},
      {.path = "zero_optimization.stage3_max_reuse_distance",
       .alias = "max_reuse_distance",
       .type = Type::integer,
       .range = limits,
       .target = in_zero<&ZeroOptions::max_reuse_distance>,
       .meaning = "stage 3: units used again within so many elements stay gathered"},
      {.path = "zero_optimization.stage3_param_persistence_threshold",
       .alias = "param_persistence_threshold",
       .type = Type::integer,
       .range = counts,
       .target = in_zero<&ZeroOptions::param_persistence_threshold>,
       .meaning = "stage 3: parameters of at most so many elements stay gathered; not set: none"},
      {.path = "zero_optimization.stage3_model_persistence_threshold",
       .alias = "model_persistence_threshold",
       .type = Type::integer,
       .range = limits,
       .target = in_zero<&ZeroOptions::model_persistence_threshold>,
       .meaning = "stage 3: most elements that stay gathered in all"},
  };
}

std::vector<Key> schedule_rows() {
  return {
      no_effect("zero_optimization.contiguous_gradients", Type::boolean, "true",
                "gradients always lie in one flat buffer per unit", "flat gradient buffers"),
      no_effect("zero_optimization.reduce_scatter", Type::boolean, "true",
                "each slice always goes to its owner alone; the sums are the same bits",
                "reduce each slice to its owner, or all-reduce"),
      no_effect("zero_optimization.use_multi_rank_bucket_allreduce", Type::boolean, "true",
                "each slice always goes to its owner alone", "one all-reduce per bucket"),
      no_effect("zero_optimization.allgather_partitions", Type::boolean, "true",
                "DeepSpeed never uses it either", says_nothing),
      or_null(harmless(
          no_effect("zero_optimization.overlap_comm", Type::boolean, "null",
                    "communication always overlaps with computation", "reduce while backward runs"),
          {"true"})),
      no_effect("zero_optimization.round_robin_gradients", Type::boolean, "false",
                "units are cut evenly over the ranks", "order of gradients over owners"),
      no_effect("zero_optimization.compute_grad_norm", Type::boolean, "true",
                "the norm is always taken", "take the global norm"),
      no_effect("zero_optimization.parameter_alignment", Type::boolean, "false",
                "parameters are always aligned, to 128 elements", "align parameters to 16 bytes"),
      no_effect("zero_optimization.ignore_unused_parameters", Type::boolean, "true",
                "a gradient that is never asked for counts as zero and is named once",
                "allow parameters without gradient"),
      in_range(no_effect("zero_optimization.sub_group_size", Type::integer, "1000000000",
                         "the optimizer works on the whole shard of a unit",
                         "elements per optimizer group"),
               limits),
      no_effect("zero_optimization.elastic_checkpoint", Type::boolean, "false", loads_deepspeed,
                "checkpoints for other numbers of ranks"),
      no_effect("zero_optimization.load_from_fp32_weights", Type::boolean, "true", loads_deepspeed,
                "take fp32 masters from the checkpoint"),
      no_effect("zero_optimization.pipeline_loading_checkpoint", Type::boolean, "false",
                loads_deepspeed, "ranks load one after another"),
      refused("zero_optimization.legacy_stage1", Type::boolean, "false",
              "DeepSpeed removed this implementation; remove it", "stage 1 of 2020"),
      no_effect("zero_optimization.enable_sanity_checks", Type::boolean, "false",
                "ranks always agree on their order of calls", "checks of order over ranks"),
      no_effect("zero_optimization.save_muon_momentum_buffer_in_memory", Type::boolean, "false",
                "acts with Muon under NVMe offload only", "where Muon's momentum rests"),
  };
}

Key stage3(Key key, std::string_view bare) {
  key.alias = bare;
  return key;
}

std::vector<Key> stage3_rows() {
  return {
      stage3(harmless(
                 no_effect("zero_optimization.stage3_gather_16bit_weights_on_model_save",
                           Type::boolean, "false", "a saved model is always whole, at every stage",
                           "save whole 16-bit weights"),
                 {"true"}),
             "gather_16bit_weights_on_model_save"),
      {.path = "zero_optimization.stage3_gather_fp16_weights_on_model_save",
       .type = Type::any,
       .status = Status::replaced,
       .reason = "zero_optimization.stage3_gather_16bit_weights_on_model_save",
       .meaning = "its name until 2022"},
      stage3(
          in_range(no_effect("zero_optimization.stage3_module_granularity_threshold", Type::integer,
                             "0", "the program declares its units", "small modules fetched as one"),
                   any_count),
          "module_granularity_threshold"),
      stage3(no_effect("zero_optimization.stage3_use_all_reduce_for_fetch_params", Type::boolean,
                       "false", "parameters are fetched by all-gather", "fetch by all-reduce"),
             "use_all_reduce_for_fetch_params"),
      stage3(no_effect("zero_optimization.stage3_allgather_sequential", Type::boolean, "false",
                       "a unit's parameters travel together", "one all-gather per parameter"),
             "allgather_sequential"),
      no_effect("zero_optimization.memory_efficient_linear", Type::boolean, "true", python_only,
                "a linear layer that keeps no gathered weights"),
      no_effect("zero_optimization.override_module_apply", Type::boolean, "true", python_only,
                "module-wide functions gather first"),
      no_effect("zero_optimization.log_trace_cache_warnings", Type::boolean, "false", python_only,
                "log changes of the module order"),
      {.path = "zero_optimization.leaf_module",
       .type = Type::block,
       .auto_is_absent = true,
       .status = Status::no_effect,
       .reason = "the program declares its units",
       .meaning = "modules that are fetched as one"},
      harmless(in_range(no_effect("zero_optimization.zero_hpz_partition_size", Type::integer, "1",
                                  "parameters are always gathered from all ranks, which takes "
                                  "less memory and more traffic",
                                  "ranks of the secondary partition"),
                        {.low = 0, .high = ranks.high}),
               {"0"}),
      no_effect("zero_optimization.zero_quantized_weights", Type::boolean, "false", unquantized,
                "int8 weights between ranks"),
      no_effect("zero_optimization.zero_quantized_nontrainable_weights", Type::boolean, "false",
                unquantized, "int8 frozen weights"),
      no_effect("zero_optimization.zero_quantized_gradients", Type::boolean, "false", unquantized,
                "int4 and int8 gradients between ranks"),
  };
}

}  // namespace

std::vector<Key> zero_rows() {
  std::vector<Key> result;
  for (auto rows : {honoured_rows, schedule_rows, stage3_rows})
    for (const Key& key : rows()) result.push_back(key);
  return result;
}

}  // namespace zero::config_schemas
