// Rows of DeepSpeed's other sections, and of what it has removed.
#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

constexpr std::string_view python_compiler = "DeepSpeed's compiler passes over Python models";

std::vector<Key> recomputation_rows() {
  constexpr std::string_view model_decides =
      "the model decides what it computes again; DeepSpeed's engine does not read it either";
  return {
      section("activation_checkpointing", "recomputation of activations"),
      no_effect("activation_checkpointing.partition_activations", Type::boolean, "false",
                model_decides, "cut activations over model-parallel ranks"),
      no_effect("activation_checkpointing.contiguous_memory_optimization", Type::boolean, "false",
                model_decides, "one buffer for all"),
      or_null(in_range(no_effect("activation_checkpointing.number_checkpoints", Type::integer,
                                 "null", model_decides, "how many there are"),
                       any_count)),
      no_effect("activation_checkpointing.cpu_checkpointing", Type::boolean, "false", model_decides,
                "keep them in host memory"),
      no_effect("activation_checkpointing.synchronize_checkpoint_boundary", Type::boolean, "false",
                model_decides, "wait at each one"),
      no_effect("activation_checkpointing.profile", Type::boolean, "false", model_decides,
                "measure them"),
  };
}

std::vector<Key> checkpoint_rows() {
  return {
      section("checkpoint", "how checkpoints are written"),
      one_of(no_effect("checkpoint.tag_validation", Type::choice, "Warn",
                       "tags of checkpoints must be equal on all ranks",
                       "are tags equal on all ranks"),
             {"Ignore", "Warn", "Fail"}, true),
      no_effect("checkpoint.load_universal", Type::boolean, "false",
                "checkpoints load at any stage and number of ranks; DeepSpeed's are converted "
                "first, by examples/deepspeed_checkpoint",
                "load the universal format"),
      {.path = "checkpoint.use_node_local_storage",
       .type = Type::boolean,
       .target = at<&Config::checkpoint, &CheckpointOptions::use_node_local_storage>,
       .meaning = "every node has a directory of its own: refused on several nodes"},
      section("checkpoint.parallel_write", "writers"),
      {.path = "checkpoint.parallel_write.pipeline_stage",
       .type = Type::boolean,
       .strict = true,
       .status = Status::no_effect,
       .reason = "there are no pipeline stages",
       .initial = "false",
       .meaning = "pipeline stages write in parallel"},
      no_effect("checkpoint.checkpoint_serialization", Type::boolean, "true",
                "checkpoints are safetensors files", "Python's serialization"),
  };
}

std::vector<Key> writer_rows() {
  constexpr std::string_view own_writer =
      "checkpoints are safetensors files with a writer of their own";
  const auto written_by = [](Key key) {
    key.refused_choices = {{"mock", "it writes nothing; remove it"}};
    return key;
  };
  return {
      or_null(section("checkpoint.writer", "how files are written")),
      {.path = "checkpoint.writer.decoupled",
       .type = Type::boolean,
       .target = at<&Config::checkpoint, &CheckpointOptions::decoupled>,
       .meaning = "save while training goes on"},
      written_by(one_of(no_effect("checkpoint.writer.type", Type::choice, "fast", own_writer,
                                  "which of DeepSpeed's writers"),
                        {"python", "fast"})),
      in_range(no_effect("checkpoint.writer.io_buffer_size", Type::integer, "67108864", own_writer,
                         "bytes of its buffer"),
               any_count),
      no_effect("checkpoint.writer.io_buffer_double", Type::boolean, "true", own_writer,
                "two of them"),
      in_range(no_effect("checkpoint.writer.io_multiplier", Type::integer, "1", own_writer,
                         "writes per buffer"),
               any_count),
      no_effect("checkpoint.writer.show_statistics", Type::boolean, "false", own_writer,
                "print its speed"),
      or_null(one_of(no_effect("checkpoint.writer.data_parallel", Type::choice, "null",
                               "every rank writes what it owns", "which ranks write"),
                     {"replica", "socket", "machine"})),
  };
}

std::vector<Key> model_parallel_rows() {
  constexpr std::string_view all_data =
      "every rank is a data-parallel rank, and counts as one in the batch; stage 3 takes the "
      "memory "
      "of large tensors off it";
  return {
      section("tensor_parallel", "tensor parallelism"),
      harmless(in_range(no_effect("tensor_parallel.autotp_size", Type::integer, "0", all_data,
                                  "ranks that share a tensor"),
                        {.low = 0, .high = ranks.high}),
               {"1"}),
      {.path = "tensor_parallel.tensor_parallel",
       .alias = "tp",
       .type = Type::block,
       .auto_is_absent = true,
       .status = Status::no_effect,
       .reason = all_data,
       .meaning = "tensor parallelism"},
      no_effect("tensor_parallel.tp_overlap_comm", Type::boolean, "false",
                "acts with tensor parallelism only", "overlap"),
      no_effect("tensor_parallel.preset_model", Type::any, "", "acts with tensor parallelism only",
                "known models"),
      no_effect("tensor_parallel.partition_config", Type::any, "",
                "acts with tensor parallelism only", "how tensors are cut"),
      no_effect("tensor_parallel.dtype", Type::any, "", "acts with tensor parallelism only",
                "dtype of modules"),
      or_null(no_effect("tensor_parallel.vocab_parallel_lm_head", Type::boolean, "null",
                        "acts with tensor parallelism only", "cut the head by vocabulary")),
      no_effect("tensor_parallel.vocab_parallel_ce_backend", Type::text, "torch",
                "acts with tensor parallelism only", "its loss"),
      no_effect("tensor_parallel.injection_policy_tuple", Type::any, "",
                "acts with tensor parallelism only", "modules to cut"),
      {.path = "tensor_parallel.replace_with_kernel_inject",
       .alias = "kernel_inject",
       .type = Type::boolean,
       .status = Status::no_effect,
       .reason = "acts with tensor parallelism only",
       .initial = "false",
       .meaning = "DeepSpeed's inference kernels"},
      no_effect("tensor_parallel.keep_module_on_host", Type::boolean, "false",
                "acts with tensor parallelism only", "where modules rest"),
      or_null(no_effect("expert_parallel", Type::block, "",
                        "acts on layers of PyTorch models, which there are none of here",
                        "expert parallelism")),
      no_effect("pipeline", Type::block, "", "acts with DeepSpeed's pipeline modules only",
                "pipeline parallelism"),
  };
}

std::vector<Key> compile_rows() {
  std::vector<Key> rows{section("compile", python_compiler)};
  for (const auto path :
       {"compile.deepcompile", "compile.autoep_non_moe", "compile.free_activation",
        "compile.offload_activation", "compile.offload_activation_pin_memory",
        "compile.offload_opt_states", "compile.offload_parameters", "compile.double_buffer",
        "compile.symmetric_memory", "compile.debug_log", "compile.sync_before_reduce",
        "compile.sync_after_reduce", "compile.sync_before_allgather",
        "compile.sync_after_allgather", "compile.keep_int_input_tensors",
        "compile.keep_all_input_tensors", "compile.passes"})
    rows.push_back(no_effect(path, Type::any, "", python_compiler, "a compiler option"));
  rows.push_back(in_range(no_effect("compile.free_activation_threshold", Type::integer, "10485760",
                                    python_compiler, "a compiler option"),
                          any_count));
  for (const auto path :
       {"compile.enabled", "compile.disable", "compile.backend", "compile.kwargs"})
    rows.push_back(no_effect(path, Type::any, "",
                             "an option of 2024 for Python models; DeepSpeed 0.19 refuses it",
                             "a compiler option"));
  return rows;
}

Key block(std::string_view path, std::string_view reason, std::string_view meaning) {
  return refused(path, Type::block, "", reason, meaning);
}

std::vector<Key> other_rows() {
  std::vector<Key> rows = {
      no_effect("autotuning", Type::block, "",
                "DeepSpeed's launcher reads it; values act as they are written",
                "search for fast settings"),
      no_effect("data_efficiency", Type::block, "",
                "acts on data and layers that a Python program hands to it; in DeepSpeed too the "
                "keys alone change nothing",
                "curricula and dropped tokens"),
      no_effect("hybrid_engine", Type::block, "",
                "acts where a Python program generates text with the engine",
                "inference inside of training"),
      no_effect("weight_quantization", Type::block, "",
                "acts where a Python program creates parameters for inference",
                "quantized weights"),
      harmless(no_effect("datastates_ckpt", Type::any, "",
                         "checkpoints have a writer of their own; checkpoint.writer.decoupled "
                         "writes while training goes on",
                         "an external checkpoint engine, which its presence switches on"),
               {"false"}),
      {.path = "zero_optimization.zenflow",
       .type = Type::block,
       .nullable = true,
       .auto_is_absent = true,
       .status = Status::no_effect,
       .reason = "every step applies the whole gradient",
       .meaning = "updates of the most important gradients first"},
  };
  return rows;
}

}  // namespace

std::vector<Key> section_rows() {
  std::vector<Key> result;
  for (auto rows : {recomputation_rows, checkpoint_rows, writer_rows, model_parallel_rows,
                    compile_rows, other_rows})
    for (const Key& key : rows()) result.push_back(key);
  return result;
}

std::vector<Key> removed_rows() {
  std::vector<Key> rows = {
      block("amp", "DeepSpeed removed Apex AMP in 0.19.8; use bf16.enabled", "Apex AMP"),
      block("compression_training", "DeepSpeed removed it in 0.19.7; remove it",
            "quantization and pruning"),
      block("curriculum_learning", "DeepSpeed removed it in 0.19.8; remove it",
            "a curriculum of sequence lengths"),
      block("eigenvalue", "DeepSpeed removed it in 0.19.8; remove it", "eigenvalues of layers"),
      block("elasticity",
            "DeepSpeed removed it in 0.19.8; write the batch sizes for your number of ranks",
            "batch sizes for many numbers of ranks"),
      block("nebula", "DeepSpeed removed it in 0.19.7; remove it", "a checkpoint service"),
      block("progressive_layer_drop", "DeepSpeed removed it in 0.19.8; remove it",
            "dropped layers"),
      block("quantize_training", "DeepSpeed removed it in 0.19.7; remove it", "quantized training"),
      block("sparse_attention", "DeepSpeed removed it in 0.19.7; remove it", "sparse attention"),
      block("zero_optimization.zeropp_loco_param", "DeepSpeed removed it in 0.19.8; remove it",
            "error feedback"),
      refused("sparse_gradients", Type::boolean, "false",
              "DeepSpeed removed it in 0.19.8; gradients are dense", "sparse gradients"),
      refused("graph_harvesting", Type::boolean, "false", "DeepSpeed removed it in 0.19.8",
              "device graphs"),
      in_range(refused("zero_optimization.mics_shard_size", Type::integer, "-1",
                       "DeepSpeed removed MiCS in 0.19.7, and sharding inside of groups is not "
                       "supported by this version",
                       "ranks of a shard group"),
               {.low = -1, .high = ranks.high}),
      refused("zero_optimization.mics_hierarchical_params_gather", Type::boolean, "false",
              "DeepSpeed removed MiCS in 0.19.7", "gather in two steps"),
  };
  for (Key& row : rows) row = removed(std::move(row));
  for (Key& row : rows)
    if (row.path == "sparse_attention" || row.path.ends_with("zeropp_loco_param"))
      row.on_by_presence = true;
  return rows;
}

}  // namespace zero::config_schemas
