// Rows of zero_optimization.offload_optimizer and offload_param, and of aio, which serves them.

#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

constexpr std::string_view not_pinned =
    "what crosses to a GPU is page-locked anyway, and nothing on CPU ranks";

template <auto member>
Target in_optimizer(Config& config, const std::string&) {
  return &(config.zero_optimization.offload_optimizer.*member);
}

template <auto member>
Target in_param(Config& config, const std::string&) {
  return &(config.zero_optimization.offload_param.*member);
}

template <auto member>
Target in_aio(Config& config, const std::string&) {
  return &(config.aio.*member);
}

Key device(std::string_view path, Target (*target)(Config&, const std::string&),
           std::string_view meaning) {
  return {.path = path,
          .type = Type::choice,
          .choices = {"none", "cpu", "nvme"},
          .target = target,
          .meaning = meaning};
}

Key text(std::string_view path, Target (*target)(Config&, const std::string&),
         std::string_view meaning) {
  return {.path = path, .type = Type::text, .nullable = true, .target = target, .meaning = meaning};
}

Key integer(std::string_view path, Range range, Target (*target)(Config&, const std::string&),
            std::string_view meaning) {
  return {
      .path = path, .type = Type::integer, .range = range, .target = target, .meaning = meaning};
}

Key boolean(std::string_view path, Target (*target)(Config&, const std::string&),
            std::string_view meaning) {
  return {.path = path, .type = Type::boolean, .target = target, .meaning = meaning};
}

std::vector<Key> optimizer_part() {
  return {
      {.path = "zero_optimization.offload_optimizer",
       .nullable = true,
       .auto_is_absent = true,
       .meaning = "where optimizer states rest"},
      device("zero_optimization.offload_optimizer.device",
             in_optimizer<&OffloadOptimizerOptions::device>,
             "cpu: memory of the host, which CPU ranks use anyway; nvme: a file"),
      text("zero_optimization.offload_optimizer.nvme_path",
           in_optimizer<&OffloadOptimizerOptions::nvme_path>,
           "directory of the file, on a local disk"),
      integer("zero_optimization.offload_optimizer.buffer_count", small_counts,
              in_optimizer<&OffloadOptimizerOptions::buffer_count>,
              "n: chunks pass through n - 1 slots, at least one"),
      boolean("zero_optimization.offload_optimizer.pin_memory",
              in_optimizer<&OffloadOptimizerOptions::pin_memory>,
              "GPU ranks: page-lock all of it, not only what crosses to the GPU"),
      boolean("zero_optimization.offload_optimizer.pipeline_read",
              in_optimizer<&OffloadOptimizerOptions::pipeline_read>,
              "read the next chunk while one is updated; not set: true"),
      boolean("zero_optimization.offload_optimizer.pipeline_write",
              in_optimizer<&OffloadOptimizerOptions::pipeline_write>,
              "write the last chunk while one is updated; not set: true"),
      boolean("zero_optimization.offload_optimizer.fast_init",
              in_optimizer<&OffloadOptimizerOptions::fast_init>,
              "do not write the zeros that states start as"),
      {.path = "zero_optimization.offload_optimizer.ratio",
       .type = Type::number,
       .range = unit_interval,
       .target = in_optimizer<&OffloadOptimizerOptions::ratio>,
       .meaning = "share of chunks that rest there; the first ones stay in memory"},
      no_effect(
          "zero_optimization.offload_optimizer.super_offload", Type::boolean, "false",
          "updates before ranks agree, which may have to be made again, were measured here at "
          "0.98 to 1.09 of the speed of updates after it",
          "update offloaded state as gradients come"),
      in_range(no_effect("zero_optimization.offload_optimizer.cpuadam_cores_perc", Type::number,
                         "0.8", "updates run on the compute threads of the rank",
                         "cores of super_offload's worker"),
               unit_interval),
      {.path = "zero_optimization.cpu_offload",
       .type = Type::boolean,
       .nullable = true,
       .status = Status::replaced,
       .reason = "zero_optimization.offload_optimizer",
       .meaning = "old form of offload_optimizer.device cpu"},
  };
}

std::vector<Key> param_part() {
  std::vector<Key> rows = {
      {.path = "zero_optimization.offload_param",
       .nullable = true,
       .auto_is_absent = true,
       .meaning = "where the parameters of stage 3 rest"},
      device("zero_optimization.offload_param.device", in_param<&OffloadParamOptions::device>,
             "as of offload_optimizer"),
      text("zero_optimization.offload_param.nvme_path", in_param<&OffloadParamOptions::nvme_path>,
           "directory of the file; offload_optimizer's wins where both have one"),
      integer("zero_optimization.offload_param.buffer_count", small_counts,
              in_param<&OffloadParamOptions::buffer_count>,
              "shards that are fetched ahead, each as large as the largest"),
      integer("zero_optimization.offload_param.buffer_size", counts,
              in_param<&OffloadParamOptions::buffer_size>,
              "elements: fewer buffers where they would exceed buffer_count times as many"),
      integer("zero_optimization.offload_param.max_in_cpu", counts,
              in_param<&OffloadParamOptions::max_in_cpu>,
              "with nvme: elements of a rank that stay in host memory, first units first"),
      no_effect("zero_optimization.offload_param.pin_memory", Type::boolean, "true", not_pinned,
                "page-locked host buffers"),
      {.path = "zero_optimization.cpu_offload_param",
       .alias = "cpu_offload_params",
       .type = Type::boolean,
       .nullable = true,
       .status = Status::replaced,
       .reason = "zero_optimization.offload_param",
       .meaning = "old form of offload_param.device cpu"},
      or_null(
          harmless(no_effect("zero_optimization.cpu_offload_use_pin_memory", Type::boolean, "",
                             "DeepSpeed has no use for it any more", "page-locked host buffers"),
                   {"true", "false"})),
      no_effect("zero_optimization.cpu_offload_pin_memory", Type::boolean, "",
                "DeepSpeed 0.19 refuses it; host buffers are page-locked by pin_memory",
                says_nothing),
      removed(refused("zero_optimization.cpu-offload", Type::boolean, "false",
                      "no DeepSpeed release reads this spelling; it is written "
                      "offload_optimizer.device",
                      says_nothing)),
  };
  rows[1].stage_3_only = true;
  return rows;
}

std::vector<Key> aio_rows() {
  constexpr std::string_view always =
      "a request is sent as soon as another one has ended, while the rest are under way";
  return {
      {.path = "aio", .nullable = true, .meaning = "file access of NVMe offload"},
      integer("aio.block_size", {.low = 1, .high = 1 << 30}, in_aio<&AioOptions::block_size>,
              "bytes per request and checksum, rounded up to 4096"),
      integer("aio.queue_depth", {.low = 1, .high = 1 << 16}, in_aio<&AioOptions::queue_depth>,
              "requests under way, reads and writes each"),
      integer("aio.intra_op_parallelism", {.low = 1, .high = 1 << 16},
              in_aio<&AioOptions::intra_op_parallelism>, "times as many requests under way"),
      in_range(
          no_effect("aio.thread_count", Type::integer, "1",
                    "the old name of intra_op_parallelism, which DeepSpeed does not read either",
                    "its old name, not read"),
          any_count),
      no_effect("aio.single_submit", Type::boolean, "false", always, "one request at a time"),
      no_effect("aio.overlap_events", Type::boolean, "true", always, "submit and wait together"),
      no_effect("aio.use_gds", Type::boolean, "false",
                "what is read and written lies in host memory on CPU ranks", "GPU-direct storage"),
  };
}

}  // namespace

std::vector<Key> offload_rows() {
  std::vector<Key> result;
  for (auto rows : {optimizer_part, param_part, aio_rows})
    for (const Key& key : rows()) result.push_back(key);
  return result;
}

}  // namespace zero::config_schemas
