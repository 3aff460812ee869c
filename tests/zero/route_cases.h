// Settings whose routes route_test.cpp executes.
#pragma once

#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "zero/config.h"

namespace route_cases {

struct Case {
  std::string name;
  zero::Config config;
  int ranks = 1;
  bool open_ended = false;
  int node_ranks = 0;
};

// Groups of micro batches: within a rank's part of a node, of a whole node, over nodes, over micro
// steps, and of more micro batches than a step has.
inline void add_groups(std::vector<Case>& all) {
  for (const auto& [ranks, node_ranks] : {std::pair{1, 1}, {3, 3}, {4, 2}, {8, 4}, {8, 2}, {6, 3}})
    for (const int stage : {0, 1, 3})
      for (const int batches : {2 * ranks, 2 * ranks + 1, 2 * ranks + (ranks + 1) / 2, 3 * ranks})
        for (const int group : {2, 3, 4, 8, 100}) {
          Case c{std::to_string(ranks) + " ranks in nodes of " + std::to_string(node_ranks) +
                     ", stage " + std::to_string(stage) + ", " + std::to_string(batches) +
                     " micro batches in groups of " + std::to_string(group),
                 {},
                 ranks,
                 false,
                 node_ranks};
          c.config.zero_optimization.stage = stage;
          c.config.bf16_enabled = stage == 1;
          c.config.batch = {batches, 1, 0};
          c.config.zero_core.rank_independent = true;
          c.config.zero_core.rank_independent_group = group;
          all.push_back(c);
        }
}

inline std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int ranks : {1, 2, 3, 4, 8})
    for (const char* row : {"0", "1", "2", "3", "hybrid2", "hfsdp2", "hfsdp4", "hpz2"})
      for (const auto sync :
           {zero::GradientSync::each, zero::GradientSync::last, zero::GradientSync::inner})
        for (const int form : {0, 1, 2, 3, 4, 5, 6, 7}) {
          Case c{std::to_string(ranks) + " ranks, row " + row + ", sync " +
                     std::to_string(int(sync)) + ", form " + std::to_string(form),
                 {},
                 ranks,
                 form == 3};
          zero::CoreOptions& core = c.config.zero_core;
          zero::ZeroOptions& options = c.config.zero_optimization;
          const std::string name = row;
          const int group = std::isdigit(static_cast<unsigned char>(name.back())) && name.size() > 1
                                ? name.back() - '0'
                                : 0;
          if (group > 0 && (ranks % group != 0 || ranks <= group)) continue;
          options.stage = name.size() == 1 ? name[0] - '0' : 3;
          if (name.starts_with("h") && name != "hpz2") core.shard_group_size = group;
          if (name.starts_with("hfsdp")) core.optimizer_over_all_ranks = true;
          if (name == "hpz2") options.hpz_partition_size = 2;
          core.gradient_sync = sync;
          c.config.batch.train_micro_batch_size_per_gpu = 1;
          c.config.batch.gradient_accumulation_steps = form == 0 ? 1 : 3;
          if (form == 2 || form == 3) c.config.bf16_enabled = true;
          if (form == 2) c.config.grad_accum_dtype = zero::DType::fp32;
          if (form == 4)
            c.config.gradient_predivide_factor = 4, c.config.grad_accum_dtype = zero::DType::fp32;
          if (form == 5 && group == 0) {
            core.reduce_group_size = 2;
            core.wire.reduce = "int8", core.wire.reduce_inside = "fp8_e4m3";
          }
          // Two micro steps and a third one, with a micro batch for every rank or for some.
          if (form >= 6) {
            core.rank_independent = true;
            c.config.batch = {form == 6 ? 3 * ranks : 2 * ranks + (ranks + 1) / 2, 1, 0};
            c.config.bf16_enabled = form == 7;
          }
          all.push_back(c);
        }
  add_groups(all);
  return all;
}

}  // namespace route_cases
