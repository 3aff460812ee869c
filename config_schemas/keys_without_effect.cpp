// Keys that are checked and then listed at start with the reason why they have no effect here.
#include "config_schemas/keys.h"
#include "zero/plan/key_rows.h"

namespace zero::config_schemas {

using namespace config_keys;

namespace {

void add_general_without_effect(RowList& rows) {
  rows.in("",
          {integer("data_parallel_size", ranks, "1", "data-parallel ranks",
                   "the number of started ranks decides"),
           boolean("use_data_before_expert_parallelism", "false", "order of ranks in expert groups",
                   "acts with expert parallelism only"),
           boolean("zero_allow_untested_optimizer", "false",
                   "permit optimizers that DeepSpeed has not tested with ZeRO",
                   "every optimizer here is tested at every stage"),
           boolean("zero_force_ds_cpu_optimizer", "true",
                   "insist on DeepSpeed's CPU optimizers under offload",
                   "concerns optimizers that a Python client brings")
               .harmless({"false"}),
           integer("allgather_size", any_count, "500000000",
                   "old name of zero_optimization.allgather_bucket_size",
                   "only read next to a boolean zero_optimization, as its allgather_bucket_size"),
           boolean("disable_allgather", "false", never_read, "DeepSpeed never uses it either"),
           integer("vocabulary_size", any_count, "null", "size of the vocabulary",
                   "DeepSpeed only warns if it is no multiple of 8")
               .or_null(),
           boolean("disable_python_gc", "false", "switch Python's garbage collector off",
                   "a Python program calls gc.disable() itself"),
           any("gradient_accumulation_dtype", never_read,
               "DeepSpeed does not read it: it is written data_types.grad_accum_dtype"),
           any("fp32_allreduce", never_read,
               "DeepSpeed does not read it: it is written communication_data_type"),
           any("zero_force_ds_cpu_optimization", never_read,
               "DeepSpeed does not read it: it is written zero_force_ds_cpu_optimizer"),
           choice("seq_parallel_communication_data_type", {"fp16", "bf16", "fp32"}, "fp32",
                  "dtype between sequence ranks", "acts with sequence parallelism only")
               .in_any_case(),
           block("expert_parallel", "expert parallelism",
                 "acts on the layers of experts that DeepSpeed itself has")
               .or_null(),
           block("autotuning", "search for fast settings",
                 "zero tune reads it; in training, values act as they are written"),
           block("data_efficiency", "curricula and dropped tokens",
                 "acts on data and layers that a Python program hands to it; in DeepSpeed too the "
                 "keys alone change nothing"),
           block("hybrid_engine", "inference inside of training",
                 "has an effect if a Python program generates text with the engine"),
           block("weight_quantization", "quantized weights",
                 "has an effect if a Python program creates parameters for inference"),
           any("datastates_ckpt", "an external checkpoint engine, which its presence switches on",
               "checkpoints have a writer of their own; checkpoint.writer.decoupled writes while "
               "training goes on")
               .harmless({"false"})});
  rows.in("", "a key of Accelerate's own file, which DeepSpeed does not read; remove it",
          {boolean("zero3_init_flag", "", never_read),
           boolean("zero3_save_16bit_model", "", never_read)});
  rows.in("elasticity", {integer("min_time", counts, "0",
                                 "minutes before a scheduler changes the number of ranks",
                                 "DeepSpeed's engine only checks it")});
}

void add_precision_without_effect(RowList& rows) {
  rows.in("fp16", {boolean("auto_cast", "false", "cast inputs to fp16",
                           "the program hands its inputs to its own kernels")
                       .under("fp16.enabled")});
  rows.in("bf16", {boolean("immediate_grad_update", "false", "when gradients are added",
                           "gradients are added where backward leaves them"),
                   boolean("check_grad_overflow", "true", "skip steps with non-finite gradients",
                           "a step with non-finite gradients is always skipped, on all ranks")});
  rows.in("bf16", "bfloat16 needs no loss scaling; DeepSpeed 0.19 refuses the key",
          {any("loss_scale", "copied from fp16"), any("initial_scale_power", "copied from fp16"),
           any("loss_scale_window", "copied from fp16"), any("hysteresis", "copied from fp16"),
           any("min_loss_scale", "copied from fp16")});
  rows.in("", "older releases passed over it; DeepSpeed 0.19 refuses the key",
          {any("bf16.auto_cast", never_read), any("fp16.opt_level", never_read),
           any("fp16.fp16_scale_tolerance", never_read)});
  rows.in("data_types",
          "buffers of PyTorch modules keep their dtype in Python anyway, unless buffer_dtype says "
          "another; for a C++ module it can say fp32",
          {any("keep_in_fp32_modules", "buffers that stay in fp32; excludes buffer_dtype")
               .with(&Key::initial, "auto")});
  rows.in("torch_autocast",
          {plain(Type::list, "lower_precision_safe_modules", "null",
                 "modules whose gradients travel in the dtype of the casts",
                 "communication_data_type chooses the dtype of gradients between ranks")
               .or_null()
               .under("torch_autocast.enabled")});
}

void add_sharding_without_effect(RowList& rows) {
  rows.in(
      "zero_optimization",
      {boolean("contiguous_gradients", "true", "flat gradient buffers",
               "gradients are always in one flat buffer per unit"),
       boolean("reduce_scatter", "true", "reduce each slice to its owner, or all-reduce",
               "each slice always goes to its owner alone; the sums are the same bits"),
       boolean("use_multi_rank_bucket_allreduce", "true", "one all-reduce per bucket",
               "each slice always goes to its owner alone"),
       boolean("allgather_partitions", "true", never_read, "DeepSpeed never uses it either"),
       boolean("overlap_comm", "null", "reduce while backward runs",
               "communication always overlaps with computation")
           .harmless({"true"})
           .or_null(),
       boolean("round_robin_gradients", "false", "order of gradients over owners",
               "units are cut evenly over the ranks"),
       boolean("compute_grad_norm", "true", "take the global norm", "the norm is always taken"),
       boolean("parameter_alignment", "false", "align parameters to 16 bytes",
               "parameters are always aligned, to 128 elements"),
       boolean("ignore_unused_parameters", "true", "allow parameters without gradient",
               "a gradient that is never asked for counts as zero and is named once"),
       integer("sub_group_size", limits, "1000000000", "elements per optimizer group",
               "the optimizer works on the whole shard of a unit"),
       boolean("enable_sanity_checks", "false", "checks of order over ranks",
               "ranks always agree on their order of calls"),
       boolean("save_muon_momentum_buffer_in_memory", "false", "keep Muon's momentum in memory",
               "acts with Muon under NVMe offload only"),
       boolean("stage3_gather_16bit_weights_on_model_save", "false", "save whole 16-bit weights",
               "a saved model is always whole, at every stage")
           .also("gather_16bit_weights_on_model_save")
           .harmless({"true"}),
       boolean("stage3_use_all_reduce_for_fetch_params", "false", "fetch by all-reduce",
               "parameters are fetched by all-gather")
           .also("use_all_reduce_for_fetch_params"),
       boolean("stage3_allgather_sequential", "false", "one all-gather per parameter",
               "a unit's parameters travel together")
           .also("allgather_sequential"),
       boolean("mics_hierarchical_params_gather", "false", "gather in two steps",
               "a group that spans nodes is gathered in two steps on CPU ranks always, and as NCCL "
               "chooses on GPUs"),
       block("zenflow", "updates of the most important gradients first",
             "every step applies the whole gradient")
           .or_null()
           .or_auto()});
  rows.in("zero_optimization", "acts when a DeepSpeed checkpoint is loaded",
          {boolean("elastic_checkpoint", "false", "checkpoints for other numbers of ranks"),
           boolean("load_from_fp32_weights", "true", "take fp32 masters from the checkpoint"),
           boolean("pipeline_loading_checkpoint", "false", "ranks load one after another")});
  rows.in(
      "zero_optimization", "about hooks in modules: the engine gathers and frees units",
      {boolean("memory_efficient_linear", "true", "a linear layer that keeps no gathered weights"),
       boolean("override_module_apply", "true", "module-wide functions gather first"),
       boolean("log_trace_cache_warnings", "false", "log changes of the module order")});
  rows.in("zero_optimization", "the program declares its units, in Python by unit_policy",
          {integer("stage3_module_granularity_threshold", any_count, "0",
                   "small modules fetched as one")
               .also("module_granularity_threshold"),
           block("leaf_module", "modules that are fetched as one").or_auto()});
}

void add_offload_without_effect(RowList& rows) {
  rows.in(
      "zero_optimization",
      {boolean("offload_optimizer.super_offload", "false",
               "update offloaded state as gradients come",
               "updates before ranks agree, which may have to be made again, were measured "
               "here at 0.98 to 1.09 of the speed of updates after it"),
       plain(Type::number, "offload_optimizer.cpuadam_cores_perc", "0.8",
             "cores of super_offload's worker", "updates run on the compute threads of the rank")
           .with(&Key::range, unit_interval),
       boolean("offload_param.pin_memory", "true", "page-locked host buffers",
               "data copied to a GPU is page-locked anyway, and CPU ranks need none"),
       boolean("cpu_offload_use_pin_memory", "", "page-locked host buffers",
               "DeepSpeed has no use for it any more")
           .harmless({"true", "false"})
           .or_null(),
       boolean("cpu_offload_pin_memory", "", never_read,
               "DeepSpeed 0.19 refuses it; host buffers are page-locked by pin_memory")});
  rows.in("aio", "a request is sent as soon as another one has ended, while the rest are under way",
          {integer("thread_count", any_count, "1", "old name of intra_op_parallelism",
                   "the old name of intra_op_parallelism, which DeepSpeed does not read either"),
           boolean("single_submit", "false", "one request at a time"),
           boolean("overlap_events", "true", "overlap submitting and waiting"),
           boolean("use_gds", "false", "GPU-direct storage",
                   "data of reads and writes is in host memory on CPU ranks")});
}

void add_optimizer_without_effect(RowList& rows) {
  static constexpr std::string_view with_adam[] = {"Adam", "AdamW", "Muon"};
  static constexpr std::string_view cleared[] = {"Adam", "AdamW", "Lion", "Muon"};
  static constexpr std::string_view on_cpu[] = {"Adam", "AdamW", "Lion", "Adagrad", "Muon"};
  rows.in("optimizer", {any("params.torch_adam", "PyTorch's implementation",
                            "the update is the same; only its default weight_decay is taken over")
                            .with(&Key::initial, "false")
                            .of(with_adam),
                        boolean("params.set_grad_none", "true", "how gradients are cleared",
                                "gradients are zeroed at their first use")
                            .of(cleared),
                        boolean("params.fp32_optimizer_states", "true", "fp32 moments",
                                "moments are fp32; bf16.bf16_optimizer_states makes them bf16")
                            .of(on_cpu),
                        boolean("legacy_fusion", "false", "the old fused step",
                                "about DeepSpeed's fp16 wrapper")});
}

void add_checkpoint_without_effect(RowList& rows) {
  rows.in("checkpoint",
          {choice("tag_validation", {"Ignore", "Warn", "Fail"}, "Warn",
                  "check that tags are equal on all ranks",
                  "tags of checkpoints must be equal on all ranks")
               .in_any_case(),
           boolean("load_universal", "false", "load the universal format",
                   "checkpoints load at any stage and number of ranks; DeepSpeed's are converted "
                   "first, by examples/deepspeed_checkpoint"),
           boolean("parallel_write.pipeline_stage", "false", "pipeline stages write in parallel",
                   "all ranks write")
               .strictly(),
           boolean("checkpoint_serialization", "true", "Python's serialization",
                   "checkpoints are safetensors files")});
  rows.in("checkpoint.writer", "checkpoints are safetensors files with a writer of their own",
          {choice("type", {"python", "fast"}, "fast", "which of DeepSpeed's writers")
               .with(&Key::refused_choices, {{"mock", "it writes nothing; remove it"}}),
           integer("io_buffer_size", any_count, "67108864", "bytes of the write buffer"),
           boolean("io_buffer_double", "true", "use two write buffers"),
           integer("io_multiplier", any_count, "1", "writes per buffer"),
           boolean("show_statistics", "false", "print the speed of writing"),
           choice("data_parallel", {"replica", "socket", "machine"}, "null", "which ranks write",
                  "every rank writes its own slices")
               .or_null()});
}

void add_models_without_effect(RowList& rows) {
  constexpr std::string_view all_data = "acts with tensor_parallel.autotp_size above 1 only";
  rows.in(
      "activation_checkpointing",
      "the model decides which results it recomputes; DeepSpeed's engine does not read it either",
      {boolean("partition_activations", "false", "partition activations over model-parallel ranks"),
       boolean("contiguous_memory_optimization", "false",
               "one buffer for all checkpointed activations"),
       integer("number_checkpoints", any_count, "null", "number of checkpoints").or_null(),
       boolean("cpu_checkpointing", "false", "keep checkpoints in host memory"),
       boolean("synchronize_checkpoint_boundary", "false", "synchronize at each checkpoint"),
       boolean("profile", "false", "measure the recomputation")});
  rows.in("pipeline", "PipelineModule has arguments for it",
          {any("seed_layers", "a seed for each layer"),
           any("activation_checkpoint_interval", "layers between two checkpoints of activations"),
           any("pipe_partitioned", "activations are partitioned"),
           any("grad_partitioned", "gradients of activations are partitioned"),
           any("use_reentrant", "how torch recomputes")});
  rows.in("tensor_parallel", "acts with tensor parallelism only",
          {block("tensor_parallel", "tensor parallelism", all_data).also("tp").or_auto(),
           boolean("tp_overlap_comm", "false", "overlap communication with computation"),
           any("preset_model", "known models"),
           any("partition_config", "how tensors are partitioned"), any("dtype", "dtype of modules"),
           boolean("vocab_parallel_lm_head", "null", "partition the head by vocabulary").or_null(),
           plain(Type::text, "vocab_parallel_ce_backend", "torch", "implementation of the loss"),
           any("injection_policy_tuple", "modules to partition"),
           boolean("replace_with_kernel_inject", "false", "DeepSpeed's inference kernels")
               .also("kernel_inject"),
           boolean("keep_module_on_host", "false", "keep modules on the host")});
}

void add_compile_without_effect(RowList& rows) {
  constexpr std::string_view option = "a compiler option";
  rows.in(
      "compile", python_compiler,
      {any("deepcompile", option), any("autoep_non_moe", option), any("free_activation", option),
       any("offload_activation", option), any("offload_activation_pin_memory", option),
       any("offload_opt_states", option), any("offload_parameters", option),
       any("double_buffer", option), any("symmetric_memory", option), any("debug_log", option),
       any("sync_before_reduce", option), any("sync_after_reduce", option),
       any("sync_before_allgather", option), any("sync_after_allgather", option),
       any("keep_int_input_tensors", option), any("keep_all_input_tensors", option),
       any("passes", option), integer("free_activation_threshold", any_count, "10485760", option)});
  rows.in("compile", "an option of 2024 for Python models; DeepSpeed 0.19 refuses it",
          {any("enabled", option), any("disable", option), any("backend", option),
           any("kwargs", option)});
}

void add_output_without_effect(RowList& rows) {
  constexpr std::string_view own_output =
      "diagnostic output of DeepSpeed; the program prints its own";
  constexpr std::string_view profiler = "flops_profiler.enabled";
  rows.in("", own_output,
          {choice("log_level", {"debug", "info", "warning", "error", "critical"}, "null",
                  "amount of output")
               .or_null(),
           boolean("timers.throughput.enabled", "true", "measure throughput").harmless({"false"}),
           boolean("timers.throughput.synchronized", "true", "wait for the device")
               .harmless({"false"})});
  constexpr std::string_view communication = "comms_logger.enabled";
  rows.in("comms_logger",
          "the table of comms_logger.enabled has all operations; zero_core.trace has each call",
          {boolean("prof_all", "true", "log all operations").under(communication),
           plain(Type::list, "prof_ops", "[]", "operations to log").under(communication),
           boolean("verbose", "false", "log each call").under(communication),
           boolean("debug", "false", "log callers too").under(communication)});
  rows.in(
      "flops_profiler", "the profile is of the whole step; zero_core.trace has each unit",
      {integer("end_profile_step", any_count, "", "not read").under(profiler),
       integer("module_depth", any_count, "-1", "number of modules printed").under(profiler),
       integer("top_modules", any_count, "1", "number of modules printed").under(profiler),
       boolean("detailed", "true", "more output").under(profiler),
       plain(Type::number, "recompute_fwd_factor", "0", "forward passes that are computed again")
           .with(&Key::range, signed_rates)
           .under(profiler)});
}

void add_services_without_effect(RowList& rows) {
  constexpr std::string_view none =
      "nothing is sent to a service; tensorboard and csv_monitor write records to files";
  rows.in("", none,
          {boolean("wandb.enabled", "false", "write records"),
           boolean("comet.enabled", "false", "write records"),
           integer("comet.samples_log_interval", any_count, "100", "of the monitor")
               .under("comet.enabled")});
  for (const char* name : {"group", "team", "project"})
    rows.in("wandb", none, {any(name, "of the monitor").or_null().under("wandb.enabled")});
  for (const char* name :
       {"project", "workspace", "api_key", "experiment_name", "experiment_key", "online", "mode"})
    rows.in("comet", none, {any(name, "of the monitor").or_null().under("comet.enabled")});
}

}  // namespace

std::vector<Key> keys_without_effect() {
  RowList rows(Status::no_effect);
  for (auto add :
       {add_general_without_effect, add_precision_without_effect, add_sharding_without_effect,
        add_offload_without_effect, add_optimizer_without_effect, add_checkpoint_without_effect,
        add_models_without_effect, add_compile_without_effect, add_output_without_effect,
        add_services_without_effect})
    add(rows);
  return rows.take();
}

}  // namespace zero::config_schemas
