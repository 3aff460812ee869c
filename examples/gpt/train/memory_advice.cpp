#include "examples/gpt/train/memory_advice.h"

#include "examples/gpt/train/gpu_training_loop.h"
#include "tools/planner/advice.h"
#include "tools/planner/host_memory.h"

namespace gpt {

std::string memory_advice(const zero::Runtime& runtime, const Task& task) {
  namespace planner = zero::planner;
  const bool gpu = task.options.device == "cuda";
  planner::Request request;
  request.config_file = task.options.config_file;
  if (request.config_file.empty())
    request.config_text = default_config(task.options, task.model.channels);
  request.overrides = task.options.overrides;
  if (!task.config.zero_core.rank_independent && !task.config.batch.elasticity.enabled) {
    const zero::Batch batch = zero::resolve_batch(task.config.batch, runtime.size());
    request.overrides["gradient_accumulation_steps"] = std::to_string(batch.accumulation);
    request.micro_batch = batch.micro;
  }
  request.shape = planner::load_shape(task.options.model);
  request.cluster = {planner::load_device(gpu ? "h100" : "cpu"), runtime.size(),
                     runtime.local_size()};
  request.cluster.device.memory_bytes =
      static_cast<double>(gpu ? gpu_memory_bytes() : planner::available_host_memory());
  request.sequence = task.sequence_length;
  request.recompute = task.options.recompute;
  request.kernels = planner::Kernels::fused;
  return planner::shortage_text(request);
}

}  // namespace gpt
