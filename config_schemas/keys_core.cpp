// Rows of our own section, zero_core.
#include "config_schemas/key_rows.h"

namespace zero::config_schemas {
namespace {

template <auto member>
Target in_core(Config& config, const std::string&) {
  return &(config.zero_core.*member);
}

template <auto member>
Target in_group(Config& config, const std::string& name) {
  return &(config.zero_core.param_groups[name].*member);
}

std::vector<Key> step_rows() {
  return {
      {.path = "zero_core", .meaning = "what DeepSpeed has no key for"},
      {.path = "zero_core.reshard_after_forward",
       .type = Type::boolean,
       .target = in_core<&CoreOptions::reshard_after_forward>,
       .meaning =
           "stage 3: give parameters back between forward and backward (false: SHARD_GRAD_OP)"},
      {.path = "zero_core.gradient_sync",
       .type = Type::choice,
       .choices = {"each", "last"},
       .target = in_core<&CoreOptions::gradient_sync>,
       .meaning =
           "reduce gradients after each micro step or after the last; not set: last at stages "
           "0 and 1, each at 2 and 3"},
      {.path = "zero_core.reduce_group_size",
       .type = Type::group_size,
       .range = ranks,
       .target = in_core<&CoreOptions::reduce_group_size>,
       .meaning = "ranks whose sums are formed first; \"node\": the ranks of one node"},
      {.path = "zero_core.deterministic",
       .type = Type::boolean,
       .target = in_core<&CoreOptions::deterministic>,
       .meaning =
           "on GPUs: sums in rank order instead of NCCL's own, for equal bits at every stage; "
           "CPU ranks always have them"},
      {.path = "zero_core.time_limit_seconds",
       .type = Type::number,
       .range = positive_seconds,
       .target = in_core<&CoreOptions::time_limit_seconds>,
       .meaning = "of every wait for other ranks"},
      {.path = "zero_core.deepspeed_defaults",
       .type = Type::choice,
       .choices = {"0.19", "0.14"},
       .target = in_core<&CoreOptions::deepspeed_defaults>,
       .meaning = "whose defaults fill what the file leaves out: 0.14 clips no gradients, and its "
                  "WarmupLR rises to 0.001"},
  };
}

// Checkpoints, and what rests in a file.
std::vector<Key> file_rows() {
  return {
      {.path = "zero_core.on_save_error",
       .type = Type::choice,
       .choices = {"stop", "continue"},
       .target = in_core<&CoreOptions::on_save_error>,
       .meaning = "a checkpoint that could not be written ends the run, or is only told"},
      {.path = "zero_core.preempt_grace_s",
       .type = Type::number,
       .range = seconds,
       .target = in_core<&CoreOptions::preempt_grace_s>,
       .meaning = "seconds between a signal to stop and the end: where a save would take longer, "
                  "none is begun"},
      {.path = "zero_core.async_staging_bytes",
       .type = Type::integer,
       .range = counts,
       .target = in_core<&CoreOptions::async_staging_bytes>,
       .meaning = "memory of a rank for asynchronous saves, taken at start; 0: as much as it "
                  "saves, where checkpoint.writer.decoupled asks for them"},
      {.path = "zero_core.allow_non_finite_weights",
       .type = Type::boolean,
       .target = in_core<&CoreOptions::allow_non_finite_weights>,
       .meaning = "load checkpoints and weights that hold NaN or infinity"},
      {.path = "zero_core.offload_chunk_bytes",
       .type = Type::integer,
       .range = positive_counts,
       .target = in_core<&CoreOptions::offload_chunk_bytes>,
       .meaning = "at most, of what NVMe offload reads, updates and writes at a time"},
      {.path = "zero_core.offload_cache_bytes",
       .type = Type::integer,
       .range = counts,
       .target = in_core<&CoreOptions::offload_cache_bytes>,
       .meaning = "memory for the first chunks, which then stay out of the file"},
  };
}

std::vector<Key> group_rows() {
  return {
      {.path = "zero_core.param_groups", .meaning = "optimizer groups by name"},
      {.path = "zero_core.param_groups.*", .meaning = "one group"},
      {.path = "zero_core.param_groups.*.lr_scale",
       .type = Type::number,
       .range = rates,
       .target = in_group<&ParamGroupOptions::lr_scale>,
       .meaning = "factor of the learning rate"},
      {.path = "zero_core.param_groups.*.lr",
       .type = Type::number,
       .range = rates,
       .target = in_group<&ParamGroupOptions::lr>,
       .meaning = "instead of the optimizer's; a schedule starts from it"},
      {.path = "zero_core.param_groups.*.betas",
       .type = Type::pair,
       .range = below_one,
       .target = in_group<&ParamGroupOptions::betas>,
       .meaning = "instead of the optimizer's"},
      {.path = "zero_core.param_groups.*.eps",
       .type = Type::number,
       .range = rates,
       .target = in_group<&ParamGroupOptions::eps>,
       .meaning = "instead of the optimizer's"},
      {.path = "zero_core.param_groups.*.momentum",
       .type = Type::number,
       .range = unit_interval,
       .target = in_group<&ParamGroupOptions::momentum>,
       .meaning = "instead of the optimizer's"},
      {.path = "zero_core.param_groups.*.weight_decay",
       .type = Type::number,
       .range = rates,
       .target = in_group<&ParamGroupOptions::weight_decay>,
       .meaning = "instead of the optimizer's"},
  };
}

}  // namespace

std::vector<Key> core_rows() {
  std::vector<Key> result;
  for (auto rows : {step_rows, file_rows, group_rows})
    for (const Key& key : rows()) result.push_back(key);
  return result;
}

}  // namespace zero::config_schemas
