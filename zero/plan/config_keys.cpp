// The keys that act, and the sections that contain all keys.
#include "zero/plan/config_members.h"
#include "zero/plan/key_rows.h"
#include "zero/plan/key_sections.h"

namespace zero::config_keys {

namespace {

constexpr double largest_scale = 0x1p127;  // a power of two that fp32 can represent

void add_general(RowList& rows) {
  rows.in(
      "",
      {acts("train_batch_size", at<&BatchOptions::train_batch_size>, samples,
            "samples per optimizer step over all ranks")
           .zero_as(not_set)
           .or_null(),
       acts("train_micro_batch_size_per_gpu", at<&BatchOptions::train_micro_batch_size_per_gpu>,
            samples, "samples per rank and micro step")
           .zero_as(not_set)
           .or_null(),
       acts("gradient_accumulation_steps", at<&BatchOptions::gradient_accumulation_steps>, samples,
            "micro steps per optimizer step")
           .zero_as(not_set)
           .or_null(),
       acts("dataloader_drop_last", at<&Config::dataloader_drop_last>,
            "Python: drop the last micro batch of training_data and engine.deepspeed_io() if it is "
            "smaller; a C++ program reads its data itself"),
       acts("managed_gradient_accumulation", at<&Config::managed_gradient_accumulation>,
            "false: in Python each engine.step() ends an accumulation, of any number of micro "
            "batches; a C++ program ends its own"),
       acts("gradient_clipping", at<&Config::gradient_clipping>, {.low = -1e30, .high = 1e30},
            "largest global L2 norm of the gradients; 0 or less: no clipping"),
       acts("steps_per_print", at<&Config::steps_per_print>, limits,
            "a progress line every N steps; 0 or null: never")
           .or_null()
           .with(&Key::infinity_is_null, true),
       acts("seed", at<&Config::seed>, {.low = 0, .high = largest_unsigned},
            "seed of the initial values and of the order of the data"),
       acts("prescale_gradients", at<&Config::prescale_gradients>,
            "divide gradients by the ranks before they are summed, in the dtype of the wire; "
            "so it is done for an fp16 wire anyway"),
       acts("gradient_predivide_factor", at<&Config::gradient_predivide_factor>, positive_rates,
            "divide gradients by this before they are summed, and by the rest afterwards; "
            "prescale_gradients wins"),
       acts("gradient_allreduce_op", at<&Config::gradient_allreduce_op>, Names{"mean", "sum"},
            "average or sum of the ranks' gradients; a sum is not divided on the wire either, "
            "and clipped as it is")
           .in_any_case()});
}

void add_elasticity(RowList& rows) {
  rows.in("elasticity",
          {section("a batch for many numbers of ranks"),
           acts("enabled", at<&Elastic::enabled>,
                "choose the batch as DeepSpeed 0.18 does; the keys of the batch are "
                "refused next to it"),
           acts("max_train_batch_size", at<&Elastic::max_train_batch_size>, samples,
                "largest batch to choose; needed")
               .zero_as(not_set),
           acts("micro_batch_sizes", at<&Elastic::micro_batch_sizes>, samples,
                "micro batches to choose from; needed"),
           acts("min_gpus", at<&Elastic::min_gpus>, samples,
                "least number of ranks that the batch should fit"),
           acts("max_gpus", at<&Elastic::max_gpus>, samples,
                "largest number of ranks that the batch should fit"),
           acts("num_gpus_per_node", at<&Elastic::num_gpus_per_node>, ranks,
                "version 0.2: the batch should fit whole nodes"),
           acts("version", at<&Elastic::version>, Names{"0.1", "0.2"},
                "0.1 refuses numbers of ranks that the batch does not fit; 0.2 chooses another "
                "batch for them"),
           acts("prefer_larger_batch", at<&Elastic::prefer_larger_batch>,
                "choose the larger of batches that fit as many numbers of ranks"),
           acts("ignore_non_elastic_batch_info", at<&Elastic::ignore_non_elastic_batch_info>,
                "accept the keys of the batch, without effect")});
}

void add_precision(RowList& rows) {
  rows.in("fp16",
          {section("16-bit parameters and gradients (half)").or_null(),
           acts("enabled", at<&Config::fp16_enabled>,
                "compute in fp16 with fp32 master weights and a scaled loss"),
           acts("loss_scale", at<&Scale::loss_scale>, {.low = 0, .high = largest_scale},
                "factor of the loss; 0: found while training"),
           acts("initial_scale_power", at<&Scale::initial_scale_power>, {.low = 0, .high = 127},
                "the first dynamic scale is 2 to this power"),
           acts("loss_scale_window", at<&Scale::loss_scale_window>, counts,
                "steps without overflow after which the scale doubles"),
           acts("hysteresis", at<&Scale::hysteresis>, any_count,
                "the scale halves from the overflow with this number on; below 1: never"),
           acts("consecutive_hysteresis", at<&Scale::consecutive_hysteresis>,
                "good steps refill the hysteresis"),
           acts("min_loss_scale", at<&Scale::min_loss_scale>, {.low = 0, .high = largest_scale},
                "smallest dynamic scale; an overflow at it ends the run"),
           acts("fp16_master_weights_and_grads", at<&Config::fp16_master_weights_and_grads>,
                "with fp16.enabled: the fp16 parameters are their own master weights, "
                "moments stay fp32")});
  rows.in("bf16", {section("16-bit parameters and gradients (bfloat16)").or_null(),
                   acts("enabled", at<&Config::bf16_enabled>,
                        "compute in bfloat16 with fp32 master weights"),
                   acts("bf16_master_weights_and_grads", at<&Config::bf16_master_weights_and_grads>,
                        "with bf16.enabled: the bf16 parameters are their own master weights"),
                   acts("bf16_optimizer_states", at<&Config::bf16_optimizer_states>,
                        "moments in bf16 too; needs bf16_master_weights_and_grads")});
  rows.in("", {acts("communication_data_type", at<&Config::communication_data_type>,
                    Names{"fp16", "bf16", "fp32"},
                    "dtype of gradients between ranks; null: the one that the model computes in")
                   .in_any_case()
                   .or_null()});
  rows.in(
      "data_types",
      {section("dtypes of gradient sums, parameters and buffers"),
       acts("grad_accum_dtype", at<&Config::grad_accum_dtype>, dtype_names,
            "dtype of sums of gradients over micro steps and of gradients at rest; null: the "
            "one that the model computes in")
           .or_null()
           .with(&Key::refused_choices, {{"int8", "gradients are added up in fp32, bf16 or fp16"}}),
       acts("buffer_dtype", at<&Config::buffer_dtype>, dtype_names,
            "dtype of the floating-point buffers of a PyTorch module; null: their own in Python, "
            "the one that the model computes in for a C++ module")
           .or_null()});
  rows.in("torch_autocast",
          {section("PyTorch's automatic casts"),
           acts("enabled", at<&Config::torch_autocast, &TorchAutocastOptions::enabled>,
                "Python: forward passes of the module run under torch.autocast; a C++ program's "
                "kernels choose their dtype themselves"),
           acts("dtype", at<&Config::torch_autocast, &TorchAutocastOptions::dtype>, dtype_names,
                "dtype of the casts; not set: PyTorch's default")
               .or_null()});
}

void add_sharding(RowList& rows) {
  rows.in(
      "zero_optimization",
      {section("what is sharded over the ranks, and in what pieces; the old form true is stage "
               "1, false stage 0"),
       acts("stage", at<&ZeroOptions::stage>, {.low = 0, .high = 3},
            "0: nothing, 1: optimizer states, 2: and gradients, 3: and parameters"),
       acts("zero_hpz_partition_size", at<&ZeroOptions::hpz_partition_size>,
            {.low = 0, .high = most_ranks},
            "ranks that share a second copy of gathered parameters, from which backward and "
            "later micro steps gather (hpZ); 0 or 1: none")
           .with(&Key::sharded_parameters_only, true),
       acts("mics_shard_size", at<&ZeroOptions::mics_shard_size>, {.low = -1, .high = most_ranks},
            "ranks of a shard group, as zero_core.shard_group_size; -1 or 0: all")
           .with(&Key::sharded_parameters_only, true),
       acts("zero_quantized_weights", at<&ZeroOptions::quantized_weights>,
            "gather the trainable matrices of repeated units as int8 (qwZ); vectors, "
            "persistent parameters and units that come once travel as they are")
           .with(&Key::sharded_parameters_only, true),
       acts("zero_quantized_nontrainable_weights", at<&ZeroOptions::quantized_nontrainable_weights>,
            "gather the frozen matrices of repeated units as int8")
           .with(&Key::sharded_parameters_only, true),
       acts("zero_quantized_gradients", at<&ZeroOptions::quantized_gradients>,
            "reduce gradients as int4, inside groups of zero_core.inner_group_size ranks and "
            "then over these groups (qgZ)")
           .with(&Key::sharded_parameters_only, true),
       acts("reduce_bucket_size", at<&ZeroOptions::reduce_bucket_size>, positive_counts,
            "elements per gradient reduction"),
       acts("allgather_bucket_size", at<&ZeroOptions::allgather_bucket_size>, counts,
            "elements per all-gather of parameters"),
       acts("stage3_prefetch_bucket_size", at<&ZeroOptions::prefetch_bucket_size>, counts,
            "stage 3: elements gathered ahead; not set: one unit")
           .also("prefetch_bucket_size")
           .with(&Key::sharded_parameters_only, true),
       acts("stage3_max_live_parameters", at<&ZeroOptions::max_live_parameters>, limits,
            "stage 3: most gathered elements that prefetching may reach")
           .also("max_live_parameters")
           .with(&Key::sharded_parameters_only, true),
       acts("stage3_max_reuse_distance", at<&ZeroOptions::max_reuse_distance>, limits,
            "stage 3: units used again within this many elements stay gathered")
           .also("max_reuse_distance")
           .with(&Key::sharded_parameters_only, true),
       acts("stage3_param_persistence_threshold", at<&ZeroOptions::param_persistence_threshold>,
            counts,
            "stage 3: parameters of at most this many elements stay gathered; not set: none")
           .also("param_persistence_threshold")
           .with(&Key::sharded_parameters_only, true),
       acts("stage3_model_persistence_threshold", at<&ZeroOptions::model_persistence_threshold>,
            limits, "stage 3: most elements that stay gathered in all")
           .also("model_persistence_threshold")
           .with(&Key::sharded_parameters_only, true)});
}

void add_offload(RowList& rows) {
  const Names devices{"none", "cpu", "nvme"};
  rows.in("zero_optimization.offload_optimizer",
          {section("where optimizer states are stored").or_null().or_auto(),
           acts("device", at<&States::device>, devices,
                "cpu: memory of the host, which CPU ranks use anyway; nvme: a file"),
           acts("nvme_path", at<&States::nvme_path>, "directory of the file, on a local disk")
               .or_null(),
           acts("buffer_count", at<&States::buffer_count>, small_counts,
                "n: chunks pass through n - 1 slots, at least one"),
           acts("pin_memory", at<&States::pin_memory>,
                "GPU ranks: page-lock all of it, not only data copied to the GPU"),
           acts("pipeline_read", at<&States::pipeline_read>,
                "read the next chunk while one is updated; not set: true"),
           acts("pipeline_write", at<&States::pipeline_write>,
                "write the last chunk while one is updated; not set: true"),
           acts("fast_init", at<&States::fast_init>, "do not write the zeros that states start as"),
           acts("ratio", at<&States::ratio>, unit_interval,
                "share of the chunks that are offloaded; the first ones stay in memory")});
  rows.in("zero_optimization.offload_param",
          {section("where the parameters of stage 3 are stored").or_null().or_auto(),
           acts("device", at<&Params::device>, devices, "as for offload_optimizer")
               .with(&Key::sharded_parameters_only, true),
           acts("nvme_path", at<&Params::nvme_path>,
                "directory of the file; offload_optimizer's wins if both have one")
               .or_null(),
           acts("buffer_count", at<&Params::buffer_count>, small_counts,
                "shards that are fetched ahead, each as large as the largest"),
           acts("buffer_size", at<&Params::buffer_size>, counts,
                "elements: fewer buffers if they would exceed buffer_count times this number"),
           acts("max_in_cpu", at<&Params::max_in_cpu>, counts,
                "with nvme: elements of a rank that stay in host memory, first units first")});
  rows.in("aio", {section("file access of NVMe offload").or_null(),
                  acts("block_size", at<&AioOptions::block_size>, {.low = 1, .high = 1 << 30},
                       "bytes per request and checksum, rounded up to 4096"),
                  acts("queue_depth", at<&AioOptions::queue_depth>, {.low = 1, .high = 1 << 16},
                       "requests in flight, for reads and for writes"),
                  acts("intra_op_parallelism", at<&AioOptions::intra_op_parallelism>,
                       {.low = 1, .high = 1 << 16}, "multiplies queue_depth")});
}

void add_monitors(RowList& rows) {
  const auto add_monitor = [&](const char* path, const char* meaning, auto enabled,
                               auto output_path, auto job_name) {
    rows.in(path, {section(meaning).or_auto(),
                   acts("enabled", enabled,
                        "write loss, learning rate and loss scale of every step over the samples "
                        "so far; of programs that hand their steps to zero::Monitor, as train_gpt "
                        "does"),
                   acts("output_path", output_path, "folder of the files"),
                   acts("job_name", job_name, "folder inside output_path")});
  };
  add_monitor("tensorboard", "TensorBoard event files",
              at<&Config::tensorboard, &MonitorOptions::enabled>,
              at<&Config::tensorboard, &MonitorOptions::output_path>,
              at<&Config::tensorboard, &MonitorOptions::job_name>);
  add_monitor("csv_monitor", "a CSV file per value",
              at<&Config::csv_monitor, &MonitorOptions::enabled>,
              at<&Config::csv_monitor, &MonitorOptions::output_path>,
              at<&Config::csv_monitor, &MonitorOptions::job_name>);
  for (const char* path : {"wandb", "comet"})
    rows.in(path, {section("records of training outside the program").or_auto()});
}

void add_diagnostics(RowList& rows) {
  rows.in(
      "",
      {acts("wall_clock_breakdown", at<&Config::wall_clock_breakdown>,
            "with the lines of steps_per_print: mean times of forward, backward, the update, "
            "and waits, of rank 0"),
       acts("memory_breakdown", at<&Config::memory_breakdown>,
            "with the lines of steps_per_print: current and peak memory of rank 0, by category"),
       acts("dump_state", at<&Config::dump_state>,
            "print the config in effect and the model's units at start")});
  rows.in("comms_logger",
          {section("a log of communication; in DeepSpeed its presence switches it on"),
           acts("enabled", at<&Config::comms_logger>,
                "with the lines of steps_per_print: count, bytes, time and rate of the gathers and "
                "reductions of rank 0")});
  rows.in("flops_profiler",
          {section("a profile of one step"),
           acts("enabled", at<&Config::flops_profiler, &FlopsProfilerOptions::enabled>,
                "print parameters, arithmetic, times and rates of one step; wall_clock_breakdown "
                "too"),
           acts("profile_step", at<&Config::flops_profiler, &FlopsProfilerOptions::profile_step>,
                any_count, "the step")
               .under("flops_profiler.enabled"),
           acts("output_file", at<&Config::flops_profiler, &FlopsProfilerOptions::output_file>,
                "file for the profile; null: the log")
               .or_null()
               .under("flops_profiler.enabled")});
}

void add_other_sections(RowList& rows) {
  rows.in("checkpoint", {section("how checkpoints are written"),
                         acts("use_node_local_storage", at<&Files::use_node_local_storage>,
                              "every node has a directory of its own: refused on several nodes")});
  rows.in("checkpoint.parallel_write", {section("writers")});
  rows.in("checkpoint.writer",
          {section("how files are written").or_null(),
           acts("decoupled", at<&Files::decoupled>, "save while training continues")});
  rows.in(
      "pipeline",
      {section("pipeline parallelism, of train_gpt, of decoders of transformers, and of C++ "
               "programs that pass it on"),
       acts("stages", at<&PipelineOptions::stages>, ranks,
            "ranks that share the units of a model: train_batch_size counts the ranks of one "
            "stage"),
       acts("partition", at<&PipelineOptions::partition>,
            "what the stages have in equal parts: work (best; parameters if units declare none), "
            "parameters, units (uniform), units with such a name (type:REGEX); or the first unit "
            "of each stage, as [0, 7]")
           .or_integers()});
  rows.in("timers", {section("throughput timers")});
  rows.in("timers.throughput", {section("throughput timers")});
  rows.in("activation_checkpointing", {section("recomputation of activations")});
  rows.in("tensor_parallel", {section("tensor parallelism")});
  rows.in("compile", {section(python_compiler)});
}

struct TypeOfMember {
  Type operator()(bool*) const { return Type::boolean; }
  Type operator()(std::optional<bool>*) const { return Type::boolean; }
  Type operator()(double*) const { return Type::number; }
  Type operator()(std::optional<double>*) const { return Type::number; }
  Type operator()(const detail::Pair&) const { return Type::pair; }
  Type operator()(const detail::GroupSizes&) const { return Type::group_sizes; }
  Type operator()(std::vector<std::int64_t>*) const { return Type::integers; }
  Type operator()(std::optional<std::pair<double, double>>*) const { return Type::pair; }
  Type operator()(std::string*) const { return Type::text; }
  template <class T>
  Type operator()(const T&) const {
    return Type::integer;
  }
};

// Returns the type of a value that a file gives for the member.
Type type_of(const Key& key) {
  static Config any;
  return key.choices.empty() ? std::visit(TypeOfMember{}, key.of(any, "")) : Type::choice;
}

std::vector<Key> make_keys() {
  RowList rows(Status::honored);
  for (auto add :
       {add_general, add_elasticity, add_precision, add_sharding, add_offload, add_optimizer,
        add_scheduler, add_core, add_monitors, add_diagnostics, add_other_sections})
    add(rows);
  std::vector<Key> keys = rows.take();
  for (Key& key : keys)
    if (key.of != nullptr && key.type == Type::any) key.type = type_of(key);
  return keys;
}

}  // namespace

}  // namespace zero::config_keys

namespace zero::detail {

const std::vector<Key>& honored_keys() {
  static const std::vector<Key> keys = config_keys::make_keys();
  return keys;
}

}  // namespace zero::detail
