// Rows of the `honored` keys and of the sections that contain all keys.
#include "comm/wire/codec.h"
#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

constexpr double largest_scale = 0x1p127;  // a power of two that fp32 can represent

void add_general(RowList& rows) {
  rows.in(
      "",
      {acts("train_batch_size", samples, "samples per optimizer step over all ranks").or_null(),
       acts("train_micro_batch_size_per_gpu", samples, "samples per rank and micro step").or_null(),
       acts("gradient_accumulation_steps", samples, "micro steps per optimizer step").or_null(),
       acts("dataloader_drop_last",
            "Python: drop the last micro batch of training_data and engine.deepspeed_io() if it is "
            "smaller; a C++ program reads its data itself"),
       acts("managed_gradient_accumulation",
            "false: in Python each engine.step() ends an accumulation, of any number of micro "
            "batches; a C++ program ends its own"),
       acts("gradient_clipping", {.low = -1e30, .high = 1e30},
            "largest global L2 norm of the gradients; 0 or less: no clipping"),
       acts("steps_per_print", limits, "a progress line every N steps; 0 or null: never")
           .or_null()
           .with(&Key::infinity_is_null, true),
       acts("seed", {.low = 0, .high = largest_unsigned},
            "seed of the initial values and of the order of the data"),
       acts("prescale_gradients",
            "divide gradients by the ranks before they are summed, in the dtype of the wire; "
            "so it is done for an fp16 wire anyway"),
       acts("gradient_predivide_factor", positive_rates,
            "divide gradients by this before they are summed, and by the rest afterwards; "
            "prescale_gradients wins"),
       acts("gradient_allreduce_op", Names{"mean", "sum"},
            "average or sum of the ranks' gradients; a sum is not divided on the wire either, "
            "and clipped as it is")
           .in_any_case()});
}

void add_elasticity(RowList& rows) {
  rows.in("elasticity",
          {section("a batch for many numbers of ranks"),
           acts("enabled",
                "choose the batch as DeepSpeed 0.18 does; the keys of the batch are "
                "refused next to it"),
           acts("max_train_batch_size", samples, "largest batch to choose; needed"),
           acts("micro_batch_sizes", samples, "micro batches to choose from; needed"),
           acts("min_gpus", samples, "least number of ranks that the batch should fit"),
           acts("max_gpus", samples, "largest number of ranks that the batch should fit"),
           acts("num_gpus_per_node", ranks, "version 0.2: the batch should fit whole nodes"),
           acts("version", Names{"0.1", "0.2"},
                "0.1 refuses numbers of ranks that the batch does not fit; 0.2 chooses another "
                "batch for them"),
           acts("prefer_larger_batch",
                "choose the larger of batches that fit as many numbers of ranks"),
           acts("ignore_non_elastic_batch_info", "accept the keys of the batch, without effect")});
}

void add_precision(RowList& rows) {
  rows.in("fp16", {section("16-bit parameters and gradients (half)").or_null(),
                   acts("enabled", "compute in fp16 with fp32 master weights and a scaled loss"),
                   acts("loss_scale", {.low = 0, .high = largest_scale},
                        "factor of the loss; 0: found while training"),
                   acts("initial_scale_power", {.low = 0, .high = 127},
                        "the first dynamic scale is 2 to this power"),
                   acts("loss_scale_window", counts,
                        "steps without overflow after which the scale doubles"),
                   acts("hysteresis", any_count,
                        "the scale halves from the overflow with this number on; below 1: never"),
                   acts("consecutive_hysteresis", "good steps refill the hysteresis"),
                   acts("min_loss_scale", {.low = 0, .high = largest_scale},
                        "smallest dynamic scale; an overflow at it ends the run"),
                   acts("fp16_master_weights_and_grads",
                        "with fp16.enabled: the fp16 parameters are their own master weights, "
                        "moments stay fp32")});
  rows.in("bf16", {section("16-bit parameters and gradients (bfloat16)").or_null(),
                   acts("enabled", "compute in bfloat16 with fp32 master weights"),
                   acts("bf16_master_weights_and_grads",
                        "with bf16.enabled: the bf16 parameters are their own master weights"),
                   acts("bf16_optimizer_states",
                        "moments in bf16 too; needs bf16_master_weights_and_grads")});
  rows.in("", {acts("communication_data_type", Names{"fp16", "bf16", "fp32"},
                    "dtype of gradients between ranks; null: the one that the model computes in")
                   .in_any_case()
                   .or_null()});
  rows.in(
      "data_types",
      {section("dtypes of gradient sums, parameters and buffers"),
       acts("grad_accum_dtype", dtype_names,
            "dtype of sums of gradients over micro steps and of gradients at rest; null: the "
            "one that the model computes in")
           .or_null()
           .with(&Key::refused_choices, {{"int8", "gradients are added up in fp32, bf16 or fp16"}}),
       acts("buffer_dtype", dtype_names,
            "dtype of the floating-point buffers of a PyTorch module; null: their own in Python, "
            "the one that the model computes in for a C++ module")
           .or_null()});
  rows.in("torch_autocast",
          {section("PyTorch's automatic casts"),
           acts("enabled",
                "Python: forward passes of the module run under torch.autocast; a C++ program's "
                "kernels choose their dtype themselves"),
           acts("dtype", dtype_names, "dtype of the casts; not set: PyTorch's default").or_null()});
}

void add_sharding(RowList& rows) {
  rows.in("zero_optimization",
          {section("what is sharded over the ranks, and in what pieces; the old form true is stage "
                   "1, false stage 0"),
           acts("stage", {.low = 0, .high = 3},
                "0: nothing, 1: optimizer states, 2: and gradients, 3: and parameters"),
           acts("zero_hpz_partition_size", {.low = 0, .high = most_ranks},
                "ranks that share a second copy of gathered parameters, from which backward and "
                "later micro steps gather (hpZ); 0 or 1: none")
               .with(&Key::sharded_parameters_only, true),
           acts("mics_shard_size", {.low = -1, .high = most_ranks},
                "ranks of a shard group, as zero_core.shard_group_size; -1 or 0: all")
               .with(&Key::sharded_parameters_only, true),
           acts("zero_quantized_weights",
                "gather the trainable matrices of repeated units as int8 (qwZ); vectors, "
                "persistent parameters and units that come once travel as they are")
               .with(&Key::sharded_parameters_only, true),
           acts("zero_quantized_nontrainable_weights",
                "gather the frozen matrices of repeated units as int8")
               .with(&Key::sharded_parameters_only, true),
           acts("zero_quantized_gradients",
                "reduce gradients as int4, inside groups of zero_core.inner_group_size ranks and "
                "then over these groups (qgZ)")
               .with(&Key::sharded_parameters_only, true),
           acts("reduce_bucket_size", positive_counts, "elements per gradient reduction"),
           acts("allgather_bucket_size", counts, "elements per all-gather of parameters"),
           acts("stage3_prefetch_bucket_size", counts,
                "stage 3: elements gathered ahead; not set: one unit")
               .also("prefetch_bucket_size")
               .with(&Key::sharded_parameters_only, true),
           acts("stage3_max_live_parameters", limits,
                "stage 3: most gathered elements that prefetching may reach")
               .also("max_live_parameters")
               .with(&Key::sharded_parameters_only, true),
           acts("stage3_max_reuse_distance", limits,
                "stage 3: units used again within this many elements stay gathered")
               .also("max_reuse_distance")
               .with(&Key::sharded_parameters_only, true),
           acts("stage3_param_persistence_threshold", counts,
                "stage 3: parameters of at most this many elements stay gathered; not set: none")
               .also("param_persistence_threshold")
               .with(&Key::sharded_parameters_only, true),
           acts("stage3_model_persistence_threshold", limits,
                "stage 3: most elements that stay gathered in all")
               .also("model_persistence_threshold")
               .with(&Key::sharded_parameters_only, true)});
}

void add_offload(RowList& rows) {
  const Names devices{"none", "cpu", "nvme"};
  rows.in(
      "zero_optimization.offload_optimizer",
      {section("where optimizer states are stored").or_null().or_auto(),
       acts("device", devices, "cpu: memory of the host, which CPU ranks use anyway; nvme: a file"),
       acts("nvme_path", "directory of the file, on a local disk").or_null(),
       acts("buffer_count", small_counts, "n: chunks pass through n - 1 slots, at least one"),
       acts("pin_memory", "GPU ranks: page-lock all of it, not only data copied to the GPU"),
       acts("pipeline_read", "read the next chunk while one is updated; not set: true"),
       acts("pipeline_write", "write the last chunk while one is updated; not set: true"),
       acts("fast_init", "do not write the zeros that states start as"),
       acts("ratio", unit_interval,
            "share of the chunks that are offloaded; the first ones stay in memory")});
  rows.in("zero_optimization.offload_param",
          {section("where the parameters of stage 3 are stored").or_null().or_auto(),
           acts("device", devices, "as for offload_optimizer")
               .with(&Key::sharded_parameters_only, true),
           acts("nvme_path", "directory of the file; offload_optimizer's wins if both have one")
               .or_null(),
           acts("buffer_count", small_counts,
                "shards that are fetched ahead, each as large as the largest"),
           acts("buffer_size", counts,
                "elements: fewer buffers if they would exceed buffer_count times this number"),
           acts("max_in_cpu", counts,
                "with nvme: elements of a rank that stay in host memory, first units first")});
  rows.in("aio",
          {section("file access of NVMe offload").or_null(),
           acts("block_size", {.low = 1, .high = 1 << 30},
                "bytes per request and checksum, rounded up to 4096"),
           acts("queue_depth", {.low = 1, .high = 1 << 16},
                "requests in flight, for reads and for writes"),
           acts("intra_op_parallelism", {.low = 1, .high = 1 << 16}, "multiplies queue_depth")});
}

void add_optimizer(RowList& rows) {
  constexpr std::string_view one_bit =
      "a 1-bit optimizer, which DeepSpeed removed in 0.19.7; use AdamW or Lamb";
  constexpr std::string_view mup = "of the Python package mup, not supported; use AdamW or SGD";
  const Names types{"Adam", "AdamW", "Lamb", "Lion", "Adagrad", "SGD", "Muon", "Adafactor"};
  rows.in("optimizer",
          {section("the update rule"),
           acts("type", types,
                "name of the update rule; without optimizer: AdamW. As in DeepSpeed, Adam is "
                "AdamW too unless adam_w_mode is false")
               .in_any_case()
               .with(&Key::refused_choices, {{"OneBitAdam", one_bit},
                                             {"ZeroOneAdam", one_bit},
                                             {"OneBitLamb", one_bit},
                                             {"MuAdam", mup},
                                             {"MuAdamW", mup},
                                             {"MuSGD", mup}})});
  rows.in(
      "optimizer.params",
      {section("parameters of the type"),
       acts("lr", rates, "learning rate; not given: 0.01 for Adagrad, Adafactor; 0.02 for Muon"),
       acts("weight_decay", rates, "weight decay; not given: 0.01 with torch_adam, else 0"),
       acts("betas", below_one,
            "decay of the running averages of gradients and squared gradients; not given: "
            "[0.9, 0.95] for Muon"),
       acts("eps", rates, "added to the denominator; not given: 1e-10 for Adagrad and Muon"),
       acts("adam_w_mode", "true: decoupled decay, also for Adam; AdamW ignores it"),
       acts("bias_correction", "bias correction of the running averages"),
       acts("momentum", unit_interval, "momentum; not given: 0.95 for Muon"),
       acts("dampening", signed_rates, "dampening of the gradient in the momentum"),
       acts("nesterov", "Nesterov momentum; needs momentum above 0 and dampening 0"),
       acts("max_coeff", rates, "upper limit of a tensor's trust ratio |parameter| / |update|"),
       acts("min_coeff", rates, "lower limit of the trust ratio"),
       acts("eps_inside_sqrt", "add eps inside the square root"),
       acts("lr_decay", rates, "step t runs with lr / (1 + (t - 1) lr_decay)"),
       acts("initial_accumulator_value", rates, "initial value of the sum of squares"),
       acts("muon_lr", rates,
            "instead of lr, of the matrices: parameters of two or more dimensions whose name "
            "holds neither embed nor lm_head"),
       acts("adam_lr", rates,
            "instead of lr, of all other parameters, which Adam updates; 0.0003 where lr is "
            "not given either"),
       acts("ns_method", Names{"gram", "standard"},
            "form of the Newton-Schulz iteration, in fp32")});
  rows.in(
      "optimizer.params",
      {acts("beta2_decay", Range{.low = -1e6, .high = 0},
            "step t averages squares with a share of t ^ beta2_decay"),
       acts("eps1", rates,
            "torch.optim.Adafactor's eps[0]: least root of a second moment; null: 1.19e-07, "
            "or 1e-30 with transformers_form")
           .or_null(),
       acts("eps2", rates, "its eps[1]: least size of a parameter, as root mean square"),
       acts("d", Range{.low = 1, .high = 1e6}, "most root mean square of an update"),
       acts("transformers_form",
            "as transformers' Adafactor: eps1 is added to squares, and weight_decay is "
            "relative to the step"),
       acts("scale_parameter", "steps are relative to the size of the parameter"),
       acts("relative_step", "step t has a rate of at most 1 / sqrt(t)"),
       acts("warmup_init", "with relative_step: step t has a rate of at most 1e-6 t, for any lr")});
}

void add_scheduler(RowList& rows) {
  rows.in(
      "scheduler",
      {section("the learning rate schedule; without it the rate is constant"),
       acts("type", Names{"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest", "OneCycle"},
            "name of the schedule")});
  rows.in(
      "scheduler.params",
      {section("parameters of the type"),
       acts("last_batch_iteration", {.low = -1, .high = many},
            "the step at which the schedule starts"),
       acts("warmup_min_lr", rates, "rate at the start").or_list_of_one(),
       acts("warmup_max_lr", rates,
            "rate after warmup; null: the optimizer's; not set: so too for WarmupLR, 0.001 "
            "for WarmupDecayLR")
           .or_null()
           .or_list_of_one(),
       acts("warmup_num_steps", positive_counts, "warmup steps; 1 acts like 2").strictly(),
       acts("warmup_type", Names{"log", "linear"}, "shape of the warmup"),
       acts("total_num_steps", positive_counts, "step at which the decay ends; required").needed(),
       acts("warmup_min_ratio", rates, "share of the optimizer's rate at the start"),
       acts("cos_min_ratio", rates, "share of the optimizer's rate at the end"),
       acts("lr_range_test_min_lr", positive_rates, "rate at the start").or_list_of_one(),
       acts("lr_range_test_step_size", positive_counts, "steps of one interval"),
       acts("lr_range_test_step_rate", signed_rates,
            "growth per interval, in multiples of the first rate"),
       acts("lr_range_test_staircase", "constant within an interval")});
  rows.in("scheduler.params",
          {acts("cycle_min_lr", rates, "rate at both ends of the cycle; required")
               .needed()
               .or_list_of_one(),
           acts("cycle_max_lr", rates, "rate at the top of the cycle; required")
               .needed()
               .or_list_of_one(),
           acts("decay_lr_rate", rates, "decay rate after the cycle; 0: none"),
           acts("decay_step_size", counts, "steps of that decay; 0: none"),
           acts("cycle_first_step_size", positive_counts, "steps of the rising half"),
           acts("cycle_second_step_size", counts,
                "steps of the falling half; null: as many as of the rising half")
               .or_null(),
           acts("cycle_first_stair_count", counts, "stairs of the rising half; 0: a straight line"),
           acts("cycle_second_stair_count", counts,
                "stairs of the falling half; null: as many as of the rising half")
               .or_null(),
           acts("cycle_momentum", "move the first beta against the rate; the second is 0.99 then"),
           acts("cycle_min_mom", below_one,
                "least momentum, at the top of the cycle and in the first step")
               .or_list_of_one(),
           acts("cycle_max_mom", below_one, "most momentum").or_list_of_one(),
           acts("decay_mom_rate", signed_rates,
                "growth of the momentum after the cycle, per decay_step_size; 0: none")});
}

// The section of ZeroCore's own options.
void add_core(RowList& rows) {
  rows.in(
      "zero_core",
      {section("options that DeepSpeed has no key for"),
       acts("reshard_after_forward",
            "stage 3: free gathered parameters between forward and backward (false: "
            "SHARD_GRAD_OP)"),
       acts("gradient_sync", Names{"each", "last", "inner"},
            "reduce gradients after each micro step or after the last; inner: after each inside "
            "groups of shard_group_size, else inner_group_size ranks, after the last over them; "
            "not set: last at stages 0 and 1, each at 2 "
            "and 3, inner with shard groups"),
       acts("shard_group_size", ranks,
            "stage 3: ranks that share one copy of parameters, gradients and optimizer states "
            "(HYBRID_SHARD, MiCS); \"node\": those of one node; not set: all ranks")
           .with(&Key::type, Type::group_size),
       acts("optimizer_over_all_ranks",
            "with shard_group_size: optimizer states are sharded over all ranks all the same "
            "(HFSDP)"),
       acts("reduce_group_size", ranks,
            "ranks whose sums are formed first; \"node\": the ranks of one node; [4, 8]: groups of "
            "4, then of 8, each larger than the one before and a multiple of it"),
       acts("inner_group_size", ranks,
            "ranks of the groups inside which gradient_sync inner and zero_quantized_gradients sum "
            "first, one of reduce_group_size; null: the largest of these, or the shard group")
           .or_null(),
       acts("deterministic",
            "on GPUs: sums in rank order instead of NCCL's own, for equal bits at every stage; "
            "CPU ranks always have them"),
       acts("rank_independent",
            "equal bits of losses, gradients and weights at any number of ranks: gradients are "
            "summed in fp32 in the order of the step's micro batches, train_batch_size / "
            "train_micro_batch_size_per_gpu of them; leave gradient_accumulation_steps out"),
       acts("rank_independent_group", positive_counts,
            "with rank_independent: micro batches whose sum is rounded to the wire dtype before it "
            "is added to the gradient; if it divides the ranks of each node, one sum per group "
            "travels between nodes; the same for the whole run"),
       acts("recompute_every", counts,
            "with rank_independent: every N steps each rank repeats a micro batch of another rank, "
            "and a rank that computes other values ends the run before they are applied; 0: never"),
       acts("time_limit_seconds", positive_seconds,
            "time limit of every wait for other ranks; in saves and loads, of the time in which no "
            "rank "
            "makes progress"),
       acts(
           "deepspeed_defaults", Names{"0.19", "0.14"},
           "whose defaults are used for keys that the file omits: 0.14 clips no gradients, and its "
           "WarmupLR rises to 0.001"),
       acts("on_save_error", Names{"stop", "continue"},
            "whether a checkpoint that could not be written ends the run or is only reported"),
       acts("preempt_grace_s", seconds,
            "seconds between a signal to stop and the end: if a save of train_gpt would take longer, "
            "none is begun; zero run waits a minute longer before it ends ranks"),
       acts("async_staging_bytes", counts,
            "memory of a rank for asynchronous saves, taken at start; 0: as much as it "
            "saves, if checkpoint.writer.decoupled enables them"),
       acts("allow_non_finite_weights", "accept checkpoints and weights that hold NaN or infinity"),
       acts(
           "round_initial_weights",
           "under bf16 and fp16: master weights begin as the initial values rounded to that dtype, "
           "as DeepSpeed's do; false: as the values themselves"),
       acts("resume_fallback",
            "if a file of the newest checkpoint is damaged, resume from the newest one that is "
            "not; false: an error"),
       acts("peer_copies", one_or_none,
            "1: under `zero run --restarts`, keep copies of the training state in the memory of "
            "each host, and of the next one, so that a restart does not read the disk"),
       acts("peer_copies_every", positive_counts, "steps between two copies of peer_copies"),
       acts("verify_every", counts,
            "if each CPU rank holds all parameters: compare the copies every N steps and "
            "before each save; 0: never"),
       acts("verify_comm",
            "CPU ranks: compare a digest of all data that ranks receive with the sender's, to find "
            "bits that change on the way"),
       acts("start_line",
            "rank 0 of train_gpt and of the Python package prints a line when training starts: "
            "version, stage, device, ranks, clipping, bytes of states per rank"),
       acts(
           "trace",
           "file for a trace of the newest steps of all ranks: Engine::write_trace() writes it, or "
           "the engine when it ends, and each rank its own part, next to it, if the run fails"),
       acts("json_lines",
            "file for one JSON object per step and diagnostic, appended by rank 0 of programs that "
            "pass their steps to zero::Monitor, as train_gpt and the Python package do"),
       acts("prometheus",
            "file that each step replaces by its loss, learning rate and diagnostics as Prometheus "
            "text, for the textfile collector of the node exporter; written by rank 0, as "
            "json_lines"),
       acts("offload_chunk_bytes", positive_counts,
            "largest chunk of offloaded state that is moved and updated at a time"),
       acts("offload_cache_bytes", counts,
            "memory in which the first chunks stay instead of in the file"),
       acts("offload_step", Names{"host", "device"},
            "GPU ranks with offload_optimizer.device cpu: who updates the state in host memory, "
            "the CPU, or the GPU, through which it passes in chunks; the bits are the same")});
  const Names formats(std::begin(comm::wire::format_names), std::end(comm::wire::format_names));
  rows.in(
      "zero_core.wire",
      {section("formats in which fewer bytes travel between ranks"),
       acts("gather", formats,
            "stages 1 to 3: of trainable parameters; frozen ones travel as they are"),
       acts("reduce", formats,
            "of gradients, at every stage; sums are formed in fp32 and rounded to "
            "communication_data_type"),
       acts("gather_inside", formats,
            "of gathers inside a node, if gather or zero_quantized_weights encodes those "
            "between nodes; not set: the same"),
       acts("reduce_inside", formats,
            "of sums inside a node, if reduce or zero_quantized_gradients encodes those "
            "between nodes; not set: the same"),
       acts("block_size", {.low = 32, .high = comm::wire::largest_block},
            "elements that share a scale, a multiple of 32; mxfp8 has 32"),
       acts("max_error", rates,
            "measure the relative error of encodings, and print a warning if a unit's is larger; "
            "not set: it is not measured")});
  rows.in("zero_core.param_groups", {section("optimizer groups by name")});
  rows.in("zero_core.param_groups.*",
          {section("one group"), acts("lr_scale", rates, "factor of the learning rate"),
           acts("lr", rates, "instead of the optimizer's; a schedule starts from it"),
           acts("betas", below_one, "instead of the optimizer's"),
           acts("eps", rates, "instead of the optimizer's"),
           acts("momentum", unit_interval, "instead of the optimizer's"),
           acts("weight_decay", rates, "instead of the optimizer's")});
}

void add_monitors(RowList& rows) {
  for (const auto& [path, meaning] : {std::pair{"tensorboard", "TensorBoard event files"},
                                      {"csv_monitor", "a CSV file per value"}})
    rows.in(path, {section(meaning).or_auto(),
                   acts("enabled",
                        "write loss, learning rate and loss scale of every step over the samples "
                        "so far; of programs that hand their steps to zero::Monitor, as train_gpt "
                        "does"),
                   acts("output_path", "folder of the files"),
                   acts("job_name", "folder inside output_path")});
  for (const char* path : {"wandb", "comet"})
    rows.in(path, {section("records of training outside the program").or_auto()});
}

void add_diagnostics(RowList& rows) {
  rows.in(
      "",
      {acts("wall_clock_breakdown",
            "with the lines of steps_per_print: mean times of forward, backward, the update, "
            "and waits, of rank 0"),
       acts("memory_breakdown",
            "with the lines of steps_per_print: current and peak memory of rank 0, by category"),
       acts("dump_state", "print the config in effect and the model's units at start")});
  rows.in("comms_logger",
          {section("a log of communication; in DeepSpeed its presence switches it on"),
           acts("enabled",
                "with the lines of steps_per_print: count, bytes, time and rate of the gathers and "
                "reductions of rank 0")});
  rows.in("flops_profiler",
          {section("a profile of one step"),
           acts("enabled",
                "print parameters, arithmetic, times and rates of one step; wall_clock_breakdown "
                "too"),
           acts("profile_step", any_count, "the step").under("flops_profiler.enabled"),
           acts("output_file", "file for the profile; null: the log")
               .or_null()
               .under("flops_profiler.enabled")});
}

void add_other_sections(RowList& rows) {
  rows.in("checkpoint", {section("how checkpoints are written"),
                         acts("use_node_local_storage",
                              "every node has a directory of its own: refused on several nodes")});
  rows.in("checkpoint.parallel_write", {section("writers")});
  rows.in("checkpoint.writer", {section("how files are written").or_null(),
                                acts("decoupled", "save while training continues")});
  rows.in("timers", {section("throughput timers")});
  rows.in("timers.throughput", {section("throughput timers")});
  rows.in("activation_checkpointing", {section("recomputation of activations")});
  rows.in("tensor_parallel", {section("tensor parallelism")});
  rows.in("compile", {section(python_compiler)});
}

}  // namespace

std::vector<Key> honored_keys() {
  RowList rows(Status::honored);
  for (auto add :
       {add_general, add_elasticity, add_precision, add_sharding, add_offload, add_optimizer,
        add_scheduler, add_core, add_monitors, add_diagnostics, add_other_sections})
    add(rows);
  return rows.take();
}

}  // namespace zero::config_schemas
