// The resolved configuration: plain values, a struct per section of the JSON. config_schemas/ fills
// a Config from a file; a program may also fill a Config by hand and call resolve_batch().
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "optim/loss_scaler.h"
#include "optim/options.h"
#include "zero/base/dtype.h"

namespace zero {

using Text = std::map<std::string, std::string>;

// Section "elasticity": the batch is chosen for many numbers of ranks, as DeepSpeed 0.18 does.
struct ElasticityOptions {
  bool enabled = false;
  std::int64_t max_train_batch_size = 0;         // samples; 0: not given
  std::vector<std::int64_t> micro_batch_sizes;   // samples
  std::int64_t min_gpus = 1, max_gpus = 10'000;  // ranks that count in the choice
  std::int64_t num_gpus_per_node = 1;            // version 0.2: whole nodes count
  std::string version = "0.2";                   // or "0.1"
  bool prefer_larger_batch = true;               // among batches for as many numbers of ranks
  bool ignore_non_elastic_batch_info = false;    // the keys of BatchOptions have no effect
};

// train_batch_size = micro x accumulation x data-parallel ranks, in samples. 0: not given.
struct BatchOptions {
  std::int64_t train_batch_size = 0;
  std::int64_t train_micro_batch_size_per_gpu = 0;
  std::int64_t gradient_accumulation_steps = 0;
  std::string place = "";             // position in the file ("ds_config.json:3:14"), for messages
  ElasticityOptions elasticity = {};  // chooses the three sizes, if enabled

  bool given() const {
    return elasticity.enabled || train_batch_size != 0 || train_micro_batch_size_per_gpu != 0;
  }
};

// Samples per micro batch, micro steps per step, samples per step, and micro batches of all ranks
// per step.
struct Batch {
  std::int64_t micro = 0, accumulation = 0, global = 0, micro_batches = 0;
};

// DeepSpeed's rules for the eight given / not given cases, and for the elasticity block. With
// zero_core.rank_independent the accumulation follows from the number of ranks instead, and in a
// step some ranks may have one micro batch less. Throws ConfigError.
Batch resolve_batch(const BatchOptions& options, int ranks, bool rank_independent = false);

// Home of a rank's state between uses.
enum class OffloadDevice { none, cpu, nvme };

struct OffloadOptimizerOptions {
  OffloadDevice device = OffloadDevice::none;
  std::string nvme_path;                              // a directory on a disk
  std::int64_t buffer_count = 4;                      // n gives max(1, n - 1) slots
  std::optional<bool> pipeline_read, pipeline_write;  // absent: pipelined
  bool fast_init = false;   // states start as zeros that no block of the file holds yet
  double ratio = 1;         // share of chunks that is offloaded
  bool pin_memory = false;  // GPU ranks: page-lock all offloaded host memory
};

struct OffloadParamOptions {
  OffloadDevice device = OffloadDevice::none;
  std::string nvme_path;
  std::int64_t buffer_count = 5;
  std::int64_t buffer_size = 100'000'000;   // elements
  std::int64_t max_in_cpu = 1'000'000'000;  // elements of a rank that stay in memory
};

// Reading and writing of files.
struct AioOptions {
  std::int64_t block_size = 1 << 20;      // bytes per request, with a checksum each
  std::int64_t queue_depth = 8;           // requests in flight
  std::int64_t intra_op_parallelism = 1;  // multiplies queue_depth
};

struct ZeroOptions {
  int stage = 0;
  std::int64_t reduce_bucket_size = 500'000'000;     // elements per reduce-scatter
  std::int64_t allgather_bucket_size = 500'000'000;  // elements per all-gather
  // Stage 3; in effect only if set by the file (elements).
  std::optional<std::int64_t> prefetch_bucket_size;
  std::optional<std::int64_t> max_live_parameters;
  std::optional<std::int64_t> max_reuse_distance;
  std::optional<std::int64_t> param_persistence_threshold;
  std::optional<std::int64_t> model_persistence_threshold;
  std::int64_t mics_shard_size = -1;  // greater than 0: as CoreOptions::shard_group_size
  // Greater than 1: ranks that share a second copy of gathered parameters (hpZ).
  std::int64_t hpz_partition_size = 1;
  // Stage 3: int8 gathers of the matrices of repeated units (ZeRO++'s qwZ); the same for their
  // frozen matrices.
  bool quantized_weights = false, quantized_nontrainable_weights = false;
  // Stage 3: gradients are reduced as int4, inside groups and then across groups (qgZ).
  bool quantized_gradients = false;
  OffloadOptimizerOptions offload_optimizer;
  OffloadParamOptions offload_param;
};

// When gradients are reduced if micro steps accumulate. `inner` applies to shard groups: each micro
// step reduces inside the groups, the last also across groups.
enum class GradientSync { automatic, each, last, inner };

// Options of an optimizer group, selected by ParamOptions::group.
struct ParamGroupOptions {
  double lr_scale = 1;  // factor on the scheduled rate
  // Override the optimizer's values:
  std::optional<double> weight_decay = {}, lr = {}, eps = {}, momentum = {};
  std::optional<std::pair<double, double>> betas = {};
};

// An optimizer group's values in a step. The rate is final: neither a schedule nor lr_scale changes
// it.
struct GroupValues {
  std::optional<double> learning_rate = {}, weight_decay = {}, eps = {}, momentum = {};
  std::optional<std::pair<double, double>> betas = {};
};
// Key: ParamOptions::group; "" for parameters without a group.
using ValuesByGroup = std::map<std::string, GroupValues>;

// Formats that reduce the bytes sent between ranks: "none", "bf16", "fp8_e4m3", "mxfp8", "int8" or
// "int4", see docs/wire-formats.md.
struct WireOptions {
  std::string gather = "none";  // parameters
  std::string reduce = "none";  // gradients
  // Inside a node; empty: the format used between nodes.
  std::string gather_inside, reduce_inside;
  std::int64_t block_size = 256;  // elements that share a scale; mxfp8 always uses 32
  // Measure the error of encodings, and warn above this share of a unit's exchanges.
  std::optional<double> max_error;
};

// ZeroCore's own section, "zero_core".
struct CoreOptions {
  bool reshard_after_forward = true;  // false at stage 3 is SHARD_GRAD_OP
  GradientSync gradient_sync = GradientSync::automatic;
  // Ranks that stage 3 shards over (HYBRID_SHARD, MiCS); 0: "node", those of a node; absent: all
  std::optional<std::int64_t> shard_group_size;
  bool optimizer_over_all_ranks = false;  // even if parameters are sharded in groups (HFSDP)
  int reduce_group_size = 0;              // 0: "node", the ranks of a node
  std::vector<int> wider_reduce_groups;   // each a multiple of the size before, in ranks
  // One of these group sizes, for the first stage of a two-stage reduction; absent: the shard
  // group, or the largest size.
  std::optional<std::int64_t> inner_group_size;
  bool deterministic = false;     // GPUs: sums in rank order, not NCCL's
  bool rank_independent = false;  // equal bits at any number of ranks
  // Micro batches whose sum is rounded to the wire dtype before being added to the gradient.
  std::int64_t rank_independent_group = 1;
  // Steps between those in which ranks repeat each other's micro batches; 0: never.
  std::int64_t recompute_every = 0;
  double time_limit_seconds = 600;          // for waits for ranks, see docs/config.md
  std::string deepspeed_defaults = "0.19";  // or "0.14": release of the file's defaults
  std::map<std::string, ParamGroupOptions> param_groups;
  std::int64_t offload_chunk_bytes = 48'000'000;  // limit of a read, update and write
  std::int64_t offload_cache_bytes = 0;           // bytes of the first chunks, kept in memory
  // GPU ranks: bytes of the first unit's state that stay on the GPU, although it is offloaded.
  std::int64_t offload_keep_bytes = std::int64_t{1} << 30;
  // Who steps a GPU rank's state in host memory: the host, "device", or "both".
  std::string offload_step = "host";
  // Bytes per second of a rank by which "both" divides the steps: that the host's step reads and
  // writes, and that the bus carries in each direction. Not set: 50e9.
  std::optional<double> offload_host_rate, offload_bus_rate;
  std::string on_save_error = "stop";     // or "continue": a failed save is only reported
  double preempt_grace_s = 25;            // time between a stop signal and the end
  std::int64_t async_staging_bytes = 0;   // per rank; 0: the size of the file
  bool allow_non_finite_weights = false;  // accepted in loaded weights
  bool round_initial_weights = false;     // master weights begin as rounded values, as DeepSpeed's
  bool resume_fallback = true;  // if the newest checkpoint is damaged, resume from an older one
  int peer_copies = 0;          // 1: copies of the state in the memory of hosts, for restarts
  std::int64_t peer_copies_every = 10;  // steps between these copies
  std::int64_t verify_every = 100;  // steps between comparisons of replicated parameters; 0: never
  bool verify_comm = false;         // compare digests of data sent between ranks
  // Records of training, see zero/monitor/monitor.h; empty: none.
  std::string json_lines = "", prometheus = "";
  bool start_line = true;      // Engine::start_line() is not empty
  bool track_changes = false;  // notes which elements of weights change, for Engine::changes()
  std::string trace = "";  // file for a trace of the newest steps of all ranks, see docs/trace.md
  WireOptions wire;
};

// "pipeline", and "zero_core.pipeline": how units are cut into stages, and the order of the micro
// batches of a step. A program passes `stages` on as RuntimeOptions::pipeline_stages.
struct PipelineOptions {
  int stages = 1;
  // "best", "parameters", "uniform", "type:REGEX", or the first unit of each run, "[0, 7]".
  std::string partition = "best";
  std::string schedule = "1f1b";  // "gpipe", "interleaved", "breadth_first", "best"
  int chunks = 1;                 // runs of consecutive units that each stage has
  // Why "best" chose the two above, in words; set by the engine.
  std::string reason = "";
};

// Section "checkpoint".
struct CheckpointOptions {
  bool use_node_local_storage = false;
  bool decoupled = false;  // writer.decoupled: saves are asynchronous unless SaveOptions says no
};

// "tensorboard" and "csv_monitor": records of training in files, see zero/monitor/monitor.h.
struct MonitorOptions {
  bool enabled = false;
  std::string output_path = "", job_name = "DeepSpeedJobName";  // folder, and subfolder
};

// A profile of a step.
struct FlopsProfilerOptions {
  bool enabled = false;
  std::int64_t profile_step = 1;
  std::string output_file = "";  // empty: the log
};

// PyTorch's casts of single operations around forward passes of a module in Python.
struct TorchAutocastOptions {
  bool enabled = false;
  std::optional<DType> dtype;  // absent: PyTorch's default
};

struct Config {
  BatchOptions batch;
  ZeroOptions zero_optimization;
  CoreOptions zero_core;
  PipelineOptions pipeline;
  CheckpointOptions checkpoint;
  AioOptions aio;
  optim::OptimizerOptions optimizer;
  bool optimizer_given = false;  // set by the file; otherwise defaults
  optim::SchedulerOptions scheduler;
  double gradient_clipping = 1.0;  // global L2 norm; 0 or less: off
  bool fp16_enabled = false, bf16_enabled = false;
  // In effect if that dtype is enabled: parameters serve as master weights, and for bf16 optimizer
  // states have that dtype too.
  bool fp16_master_weights_and_grads = false, bf16_master_weights_and_grads = false;
  bool bf16_optimizer_states = false;
  optim::LossScaleOptions loss_scale;  // fp16 only
  // Dtype of gradients between ranks, and of gradient sums over micro steps; absent: the compute
  // dtype.
  std::optional<DType> communication_data_type, grad_accum_dtype;
  std::optional<DType> buffer_dtype;  // of a torch module's buffers; absent: unchanged
  // These act in Python alone.
  TorchAutocastOptions torch_autocast;
  bool dataloader_drop_last = false;           // of loaders that the engine makes
  bool managed_gradient_accumulation = true;   // false: each step() ends an accumulation
  bool prescale_gradients = false;             // divide by the ranks before the sum over ranks
  double gradient_predivide_factor = 1;        // or divide by this before, and by the rest after
  std::string gradient_allreduce_op = "mean";  // or "sum": of the ranks' gradients
  std::int64_t steps_per_print = 10;           // 0: never
  std::uint64_t seed = 1234;
  MonitorOptions tensorboard, csv_monitor;
  // Diagnostics in the log, see docs/trace.md: of times, memory and exchanges with the lines of
  // steps_per_print, of the config and the units at start. Programs print these by
  // zero/monitor/diagnostics.h.
  bool wall_clock_breakdown = false, memory_breakdown = false, comms_logger = false;
  bool dump_state = false;
  FlopsProfilerOptions flops_profiler;
  // Keys that behave differently from DeepSpeed or have no effect, one per line; filled by
  // load_config() and printed once at start. Not part of describe().
  std::vector<std::string> notices;
};

// Values of the training program for "auto" in a config file. The defaults are those of Hugging
// Face's Trainer.
struct TrainerValues {
  std::optional<std::int64_t> micro_batch_size, accumulation_steps;
  std::optional<std::int64_t> hidden_size;  // the model's; determines bucket sizes
  std::optional<std::int64_t> total_steps;
  std::int64_t warmup_steps = 0;
  double learning_rate = 5e-5, weight_decay = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double gradient_clipping = 1.0;
  bool fp16 = false, bf16 = false;
};

// Reads a DeepSpeed JSON file, or an Accelerate or Hugging Face Trainer file (JSON or YAML) with an
// FSDP or DeepSpeed section; "" gives the defaults. Overrides go by path, such as
// {"zero_optimization.stage", "3"}. Throws ConfigError with all problems at once.
Config load_config(const std::string& file, const Text& overrides = {});
Config load_config(const std::string& file, const Text& overrides, const TrainerValues& values);

// Parses JSON that is in memory; `name` identifies the text in messages.
Config parse_config(const std::string& json, const std::string& name, const Text& overrides = {});

// Returns the content of a file or text as plain JSON, for programs that keep keys of their own
// there. For an Accelerate or Trainer file, returns the equivalent DeepSpeed config.
std::string config_as_json(const std::string& file);
std::string config_as_json(const std::string& text, const std::string& name);

// Returns the keys that act in Python alone and are set, for the notices of programs in C++.
std::vector<std::string> keys_of_python(const Config& config);

// Lists every value by path, sorted, a "path = value" per line: compared over ranks and logged.
std::string describe(const Config& config);

}  // namespace zero
