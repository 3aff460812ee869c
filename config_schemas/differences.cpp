#include "config_schemas/differences.h"

namespace zero::config_schemas {
namespace {

std::vector<Difference> of_values() {
  return {
      {{"steps_per_print"}, "null, never", "10", "a run that shows nothing looks stalled"},
      {{"zero_optimization.stage3_prefetch_bucket_size",
        "zero_optimization.stage3_max_live_parameters",
        "zero_optimization.stage3_max_reuse_distance"},
       "5e7, 1e9, 1e9",
       "not set: two units",
       "the large defaults keep every block of a small model gathered, which is no stage 3"},
      {{"zero_optimization.stage3_param_persistence_threshold",
        "zero_optimization.stage3_model_persistence_threshold"},
       "1e5, no limit",
       "not set: none stays gathered",
       "small parameters travel with their unit and cost no message"},
      {{"zero_optimization.overlap_comm"},
       "false below stage 3",
       "always true",
       "the sums are the same bits"},
      {{"bf16.check_grad_overflow"},
       "looked at by stages 1 and 2",
       "always true",
       "no stage applies non-finite gradients"},
      {{"fp16.min_loss_scale"},
       "an integer",
       "any number greater than 0",
       "older releases took fractions, and files have them"},
      {{"wall_clock_breakdown"},
       "true with flops_profiler.enabled",
       "as written",
       "neither key acts here"},
      {{"scheduler.params.warmup_min_lr", "scheduler.params.warmup_max_lr",
        "scheduler.params.warmup_min_ratio"},
       "WarmupCosineLR refuses rates",
       "read as warmup_min_ratio; the maximum must be the optimizer's rate",
       "the file says plainly what it wants"},
      {{"bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states",
        "fp16.fp16_master_weights_and_grads"},
       "at stages 1 to 3; fp32 moments with CPU Adam and offload alone; gradients are rounded to "
       "the dtype after clipping too",
       "at every stage, with every optimizer; what is kept is rounded once a step",
       "the rules compute in fp32 whatever the state rests in"},
      {{"gradient_allreduce_op"},
       "sum is refused at stage 3",
       "sum at every stage",
       "a sum is an average without its division"},
      {{"zero_optimization.offload_optimizer.pipeline_read",
        "zero_optimization.offload_optimizer.pipeline_write"},
       "false",
       "not set: pipelined",
       "reading ahead and writing behind change no bit"},
      {{"zero_optimization.offload_optimizer.pin_memory"},
       "true",
       "false: only what crosses to the GPU is page-locked",
       "what is page-locked is lost to everybody else on the node"},
      {{"optimizer.params.ns_method"},
       "in fp16 or bf16, where the device has them",
       "in fp32",
       "the bits depend on the matrix alone"},
  };
}

std::vector<Difference> of_refusals() {
  return {
      {{"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"},
       "refused where neither batch size is given; a number in quotes is a TypeError",
       "micro batch 1, or the program's, with a notice; a number in quotes is read",
       "the file leaves it to the program"},
      {{"amp", "compression_training", "curriculum_learning", "elasticity", "eigenvalue",
        "graph_harvesting", "nebula", "progressive_layer_drop", "quantize_training",
        "sparse_attention", "sparse_gradients", "zero_optimization.mics_shard_size",
        "zero_optimization.mics_hierarchical_params_gather", "zero_optimization.zeropp_loco_param"},
       "refused by presence",
       "refused where they are on, else a notice",
       "what is off asks for nothing"},
      {{"compile.enabled", "compile.disable", "compile.backend", "compile.kwargs",
        "bf16.loss_scale", "bf16.initial_scale_power", "bf16.loss_scale_window", "bf16.hysteresis",
        "bf16.min_loss_scale", "bf16.auto_cast", "fp16.opt_level", "fp16.fp16_scale_tolerance",
        "zero_optimization.cpu_offload_params", "zero_optimization.cpu_offload_pin_memory",
        "zero_optimization.cpu-offload"},
       "unknown, hence refused",
       "read as the key that replaced them, or a notice",
       "older releases took them, and none of them changes the result here"},
      {{"aio.use_gds"},
       "refused without CUDA",
       "a notice",
       "what rests in a file passes through host memory"},
      {{"optimizer.params.max_grad_norm"},
       "refused",
       "refused unless it repeats gradient_clipping",
       "then it asks for what is done anyway"},
      {{"optimizer.type"},
       "passed on to PyTorch or mup; unknown names fail in the engine",
       "the names of the table alone",
       "every update rule here is our own"},
      {{"scheduler.params.cycle_min_mom", "scheduler.params.cycle_max_mom",
        "scheduler.params.decay_mom_rate"},
       "any number",
       "below 1, and the run stops where decay_mom_rate raises the momentum to 1",
       "an average with such a weight diverges"},
      {{"bf16", "bfloat16"},
       "bfloat16 is not read beside bf16",
       "both together are refused",
       "one of them would be without effect"},
  };
}

}  // namespace

const std::vector<Difference>& differences() {
  static const std::vector<Difference> table = [] {
    std::vector<Difference> rows = of_values();
    for (const Difference& row : of_refusals()) rows.push_back(row);
    return rows;
  }();
  return table;
}

}  // namespace zero::config_schemas
