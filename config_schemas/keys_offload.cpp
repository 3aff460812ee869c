// Rows of zero_optimization.offload_optimizer and offload_param, and of aio, which serves them.
#include <deque>
#include <string>
#include <utility>

#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

constexpr std::string_view no_offload =
    "not supported by this version: offload; set it to \"none\" and use a higher stage or more "
    "ranks";
constexpr std::string_view with_offload = "acts with offload only";

// Rows keep views of their paths.
std::string_view kept(std::string path) {
  static std::deque<std::string> paths;
  return paths.emplace_back(std::move(path));
}

// What both sections have.
struct Tier {
  std::string_view section;
  std::string_view meaning;
  std::string_view buffer_count;
};

std::vector<Key> tier_rows(const Tier& tier) {
  const auto path = [&](std::string_view name) { return kept(join(tier.section, name)); };
  return {
      {.path = tier.section, .nullable = true, .auto_is_absent = true, .meaning = tier.meaning},
      one_of(refused(path("device"), Type::choice, "none", no_offload, "memory they rest in"),
             {"none", "cpu", "nvme"}),
      or_null(
          no_effect(path("nvme_path"), Type::text, "null", with_offload, "directory of the NVMe")),
      in_range(no_effect(path("buffer_count"), Type::integer, tier.buffer_count, with_offload,
                         "swap buffers"),
               not_negative),
      no_effect(path("pin_memory"), Type::boolean, "true", with_offload,
                "page-locked host buffers"),
  };
}

std::vector<Key> optimizer_part() {
  std::vector<Key> rows =
      tier_rows({"zero_optimization.offload_optimizer", "where the optimizer states rest", "4"});
  const std::vector<Key> own = {
      no_effect("zero_optimization.offload_optimizer.pipeline_read", Type::boolean, "false",
                with_offload, "read while stepping"),
      no_effect("zero_optimization.offload_optimizer.pipeline_write", Type::boolean, "false",
                with_offload, "write while stepping"),
      no_effect("zero_optimization.offload_optimizer.fast_init", Type::boolean, "false",
                with_offload, "quick first write"),
      in_range(no_effect("zero_optimization.offload_optimizer.ratio", Type::number, "1",
                         with_offload, "share stepped on the CPU"),
               unit_interval),
      refused("zero_optimization.offload_optimizer.super_offload", Type::boolean, "false",
              no_offload, "a CPU worker process"),
      in_range(no_effect("zero_optimization.offload_optimizer.cpuadam_cores_perc", Type::number,
                         "0.8", with_offload, "cores of that worker"),
               unit_interval),
      {.path = "zero_optimization.cpu_offload",
       .type = Type::boolean,
       .status = Status::replaced,
       .reason = "zero_optimization.offload_optimizer",
       .meaning = "old form of offload_optimizer.device cpu"},
  };
  rows.insert(rows.end(), own.begin(), own.end());
  return rows;
}

std::vector<Key> param_part() {
  std::vector<Key> rows =
      tier_rows({"zero_optimization.offload_param", "where the parameters of stage 3 rest", "5"});
  rows[1].stage_3_only = true;
  const std::vector<Key> own = {
      in_range(no_effect("zero_optimization.offload_param.buffer_size", Type::integer, "100000000",
                         with_offload, "elements per buffer"),
               not_negative),
      in_range(no_effect("zero_optimization.offload_param.max_in_cpu", Type::integer, "1000000000",
                         with_offload, "elements that stay in host memory"),
               not_negative),
      {.path = "zero_optimization.cpu_offload_param",
       .alias = "cpu_offload_params",
       .type = Type::boolean,
       .status = Status::replaced,
       .reason = "zero_optimization.offload_param",
       .meaning = "old form of offload_param.device cpu"},
      harmless(no_effect("zero_optimization.cpu_offload_use_pin_memory", Type::boolean, "",
                         "DeepSpeed has no use for it any more", "page-locked host buffers"),
               {"true", "false"}),
      no_effect("zero_optimization.cpu_offload_pin_memory", Type::boolean, "",
                "DeepSpeed 0.19 refuses it; host buffers are page-locked by pin_memory",
                says_nothing),
      gone(refused("zero_optimization.cpu-offload", Type::boolean, "false",
                   "no DeepSpeed release reads this spelling; it is written "
                   "offload_optimizer.device",
                   says_nothing)),
  };
  rows.insert(rows.end(), own.begin(), own.end());
  return rows;
}

std::vector<Key> aio_rows() {
  constexpr std::string_view with_nvme = "acts with NVMe offload only";
  return {
      {.path = "aio", .nullable = true, .meaning = "file access of NVMe offload"},
      no_effect("aio.block_size", Type::integer, "1048576", with_nvme, "bytes per request"),
      no_effect("aio.queue_depth", Type::integer, "8", with_nvme, "requests in flight"),
      no_effect("aio.intra_op_parallelism", Type::integer, "1", with_nvme, "threads per request"),
      no_effect("aio.thread_count", Type::integer, "1", with_nvme, "its old name, not read"),
      no_effect("aio.single_submit", Type::boolean, "false", with_nvme, "one request at a time"),
      no_effect("aio.overlap_events", Type::boolean, "true", with_nvme, "submit and wait together"),
      no_effect("aio.use_gds", Type::boolean, "false", with_nvme, "GPU-direct storage"),
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
