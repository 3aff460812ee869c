// A training run that has not begun: the planner's input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config_schemas/load.h"
#include "tools/planner/cluster.h"
#include "tools/planner/model_shape.h"
#include "tools/planner/step_simulation.h"

namespace zero::planner {

struct Request {
  // The user's config, a file or JSON text. If both are empty: bf16 on GPUs, fp32 on CPUs, AdamW.
  std::string config_file, config_text;
  Text overrides = {};  // by path; the rows' own are applied later
  ModelShape shape = {};
  Cluster cluster = {};
  std::optional<std::int64_t> micro_batch = {};  // samples; absent: the config's, or 1
  std::int64_t sequence = 0;                     // tokens of a sample; 0: the model's
  bool recompute = false;
  // Ranks whose memory is planned, with the first and the last; at most. The second number is that
  // of optimizers without states of matrices, with which ranks differ only by rounding.
  int planned_ranks = 8, planned_alike = 8;
  std::optional<Kernels> kernels = {};  // absent: eager on GPUs, fused on CPUs

  bool has_config() const { return !config_file.empty() || !config_text.empty(); }
  std::int64_t tokens_per_sample() const { return sequence > 0 ? sequence : shape.context; }
};

}  // namespace zero::planner
