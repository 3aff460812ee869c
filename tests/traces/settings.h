// The settings whose traces are recorded: draws from the product of everything that changes the
// transfers of parameters and gradients. Setting `index` is the same in every build.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "zero/config.h"

namespace settings {

struct Setting {
  std::string name;
  zero::Config config;
  int ranks = 1, nodes = 1;
  bool on_gpu = false;
  bool open_ended = false;  // no micro step is declared to be the last
};

// A generator whose numbers are the same everywhere (splitmix64).
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : state_(seed) {}
  int below(int n) {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return static_cast<int>((x ^ (x >> 31)) % static_cast<std::uint64_t>(n));
  }
  template <class T, std::size_t n>
  const T& of(const T (&values)[n]) {
    return values[below(static_cast<int>(n))];
  }

 private:
  std::uint64_t state_;
};

// Sums are taken inside shard groups first, if there are such groups.
inline void choose_sums(Draw& draw, Setting& s, int shard_group) {
  zero::CoreOptions& core = s.config.zero_core;
  const int choice = draw.below(4);
  if (choice == 1) core.reduce_group_size = shard_group;
  if (choice == 2 && shard_group == s.ranks) core.reduce_group_size = 2 - s.ranks % 2;
  if (choice == 3 && s.ranks == 8 && (shard_group == 8 || shard_group <= 4)) {
    core.reduce_group_size = 2;
    core.wider_reduce_groups = {4};
  }
  s.name += " sums" + std::to_string(core.reduce_group_size) +
            (core.wider_reduce_groups.empty() ? "" : ",4");
}

inline void choose_row(Draw& draw, Setting& s) {
  struct Row {
    const char* name;
    int stage;
    bool reshards, groups, over_all;
  };
  static constexpr Row rows[] = {
      {"stage0", 0, true, false, false},   {"stage1", 1, true, false, false},
      {"stage2", 2, true, false, false},   {"stage3", 3, true, false, false},
      {"grad_op", 3, false, false, false}, {"hybrid", 3, true, true, false},
      {"hybrid2", 3, false, true, false},  {"hfsdp", 3, true, true, true},
      {"hfsdp2", 3, false, true, true},    {"hpz", 3, true, false, false}};
  const Row& row = draw.of(rows);
  s.name += row.name;
  s.config.zero_optimization.stage = row.stage;
  s.config.zero_core.reshard_after_forward = row.reshards;
  const int group = s.ranks % 2 != 0 ? s.ranks : s.ranks == 8 && draw.below(2) ? 4 : 2;
  if (row.groups) {
    s.config.zero_core.shard_group_size = group;
    s.config.zero_core.optimizer_over_all_ranks = row.over_all;
    s.name += "/" + std::to_string(group);
  }
  if (std::string(row.name) == "hpz") s.config.zero_optimization.hpz_partition_size = group;
  choose_sums(draw, s, row.groups ? group : s.ranks);
}

inline void choose_ranks(Draw& draw, Setting& s) {
  static constexpr std::array<int, 2> shapes[] = {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {8, 1},
                                                  {2, 2}, {4, 2}, {8, 2}, {6, 3}};
  const auto& [ranks, nodes] = draw.of(shapes);
  s.ranks = ranks;
  s.nodes = nodes;
  s.on_gpu = draw.below(3) == 0;
  s.name += " n" + std::to_string(ranks) + "/" + std::to_string(nodes) + (s.on_gpu ? " gpu" : "");
  if (s.on_gpu && draw.below(2) == 0) {
    s.config.zero_core.deterministic = true;
    s.name += " deterministic";
  }
}

inline void choose_dtypes(Draw& draw, Setting& s) {
  static constexpr const char* dtypes[] = {"fp32", "bf16", "bf16+fp32", "bf16:fp32", "fp16"};
  const std::string dtype = draw.of(dtypes);
  s.config.bf16_enabled = dtype.starts_with("bf16");
  s.config.fp16_enabled = dtype == "fp16";
  if (dtype == "bf16+fp32") s.config.grad_accum_dtype = zero::DType::fp32;
  if (dtype == "bf16:fp32") s.config.communication_data_type = zero::DType::fp32;
  s.name += " " + dtype;
}

inline void choose_accumulation(Draw& draw, Setting& s) {
  using zero::GradientSync;
  static constexpr GradientSync syncs[] = {GradientSync::automatic, GradientSync::each,
                                           GradientSync::last, GradientSync::inner};
  const int accumulation = draw.below(2) == 0 ? 1 : 3;
  s.config.zero_core.gradient_sync = draw.of(syncs);
  s.open_ended = accumulation > 1 && draw.below(3) == 0;
  s.config.batch = {.train_micro_batch_size_per_gpu = 3,
                    .gradient_accumulation_steps = accumulation};
  s.name += " x" + std::to_string(accumulation) + (s.open_ended ? "open" : "") + " sync" +
            std::to_string(static_cast<int>(s.config.zero_core.gradient_sync));
}

inline void choose_formats(Draw& draw, Setting& s) {
  zero::ZeroOptions& zero = s.config.zero_optimization;
  zero::WireOptions& wire = s.config.zero_core.wire;
  switch (draw.below(12)) {
    case 0:
      zero.quantized_gradients = true;
      s.name += " qgz";
      break;
    case 1:
      zero.quantized_weights = true;
      s.name += " qwz";
      break;
    case 2:
      zero.quantized_weights = zero.quantized_gradients = true;
      s.name += " qwz qgz";
      break;
    case 3:
      wire.gather = wire.reduce = "int8";
      s.name += " int8";
      break;
    case 4:
      wire.reduce = "mxfp8";
      wire.reduce_inside = "none";
      s.name += " mxfp8 between nodes";
      break;
    case 5:
      wire.reduce = "int4";
      wire.reduce_inside = "fp8_e4m3";
      wire.gather = "bf16";
      wire.gather_inside = "none";
      s.name += " int4 over fp8";
      break;
    default:
      return;
  }
  if (draw.below(3) == 0) wire.max_error = 0.1;
}

inline void choose_rest(Draw& draw, Setting& s, const std::string& folder) {
  static constexpr const char* types[] = {"AdamW", "AdamW", "AdamW", "Lamb", "Muon", "SGD"};
  zero::ZeroOptions& zero = s.config.zero_optimization;
  s.config.optimizer.type = draw.of(types);
  if (draw.below(3) == 0) zero.reduce_bucket_size = zero.allgather_bucket_size = 2048;
  if (draw.below(4) == 0) s.config.prescale_gradients = true;
  if (draw.below(5) == 0) zero.param_persistence_threshold = 40;
  if (draw.below(5) == 0) s.config.zero_core.offload_chunk_bytes = 4096;
  s.config.gradient_clipping = draw.below(2);
  const int offload = draw.below(10);
  if (offload == 0) zero.offload_optimizer.device = zero::OffloadDevice::cpu;
  if (offload == 1 && s.config.optimizer.type == "AdamW") {
    zero.offload_optimizer.device = zero::OffloadDevice::nvme;
    zero.offload_optimizer.nvme_path = folder;
  }
  if (offload == 2)
    zero.offload_optimizer.device = zero.offload_param.device = zero::OffloadDevice::cpu;
  s.name += " " + s.config.optimizer.type + " offload" + std::to_string(offload);
  if (!s.on_gpu || offload > 2) return;
  // Half of the GPU ranks keep none of the first unit's state; the rest divide the steps.
  static constexpr const char* steps[] = {"host", "device", "both"};
  if (draw.below(2) == 0)
    s.config.zero_core.offload_keep_bytes = 0;
  else if (offload != 1)
    s.config.zero_core.offload_step = draw.of(steps);
  s.name += (s.config.zero_core.offload_keep_bytes == 0 ? " none kept, by " : " by ") +
            s.config.zero_core.offload_step;
}

inline Setting setting(int index, const std::string& folder) {
  Draw draw(static_cast<std::uint64_t>(index));
  Setting s;
  choose_ranks(draw, s);
  s.name += " ";
  choose_row(draw, s);
  choose_dtypes(draw, s);
  choose_accumulation(draw, s);
  choose_formats(draw, s);
  choose_rest(draw, s, folder);
  return s;
}

}  // namespace settings
