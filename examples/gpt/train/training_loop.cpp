#include "examples/gpt/train/training_loop.h"

#include <new>

#include "examples/gpt/cpu/model.h"
#include "examples/gpt/train/gpu_training_loop.h"
#include "examples/gpt/train/training_loop_of.h"
#include "tools/planner/activations.h"
#include "tools/planner/host_memory.h"
#include "zero/base/number_text.h"

namespace gpt {
namespace {

template <class T>
std::unique_ptr<TrainingLoop> make(zero::Runtime& runtime, zero::Engine& engine, const Task& task) {
  const zero::Batch batch = engine.batch();
  try {
    const Activations activations =
        task.options.recompute ? Activations::recompute : Activations::keep;
    if (runtime.pipeline_stages() == 1)
      return std::make_unique<TrainingLoopOf<Model<T>>>(runtime, engine, task, task.model,
                                                        batch.micro, task.sequence_length,
                                                        runtime.pool(), activations);
    return std::make_unique<TrainingLoopOf<Model<T>>>(
        runtime, engine, task, task.model, dims_of(task.model, batch.micro, task.sequence_length),
        runtime.pool(), held_in_stage(part_in_stage(engine, task.model), activations));
  } catch (const std::bad_alloc&) {
    throw_no_activations(batch, task, "");
  }
}

// Throws on all ranks, before a page is touched, if the ranks of a host together lack memory. The
// stages of a pipeline need different amounts: a host is judged by the mean.
void require_activations(zero::Runtime& runtime, zero::Engine& engine, const Task& task) {
  zero::planner::ActivationTerms terms{
      .tokens = {engine.batch().micro, task.sequence_length},
      .element_bytes = static_cast<int>(zero::size_of(engine.compute_dtype())),
      .recompute = task.options.recompute,
      .gpu = false,
      .threads = runtime.threads()};
  if (runtime.pipeline_stages() > 1) terms.stage = part_in_stage(engine, task.model);
  const auto over = zero::Over::all_ranks;
  const auto own = static_cast<double>(zero::planner::activation_bytes(task.model, terms));
  const double mean = runtime.sum(own, over) / runtime.sum(1.0, over);
  const auto bytes = static_cast<std::int64_t>(runtime.local_size() * mean);
  const std::int64_t left = zero::planner::available_host_memory();
  const double without = runtime.sum(bytes > left ? 1.0 : 0.0, over);  // none is taken before
  if (without == 0) return;
  throw_no_activations(engine.batch(), task,
                       ": " + zero::byte_text(bytes) + " for the ranks of this host, which has " +
                           zero::byte_text(left) + " left");
}

}  // namespace

std::unique_ptr<TrainingLoop> make_training_loop(zero::Runtime& runtime, zero::Engine& engine,
                                                 const Task& task) {
  if (task.options.device == "cuda") return make_gpu_training_loop(runtime, engine, task);
  require_activations(runtime, engine, task);
  return make_of_type(engine.compute_dtype(),
                      [&]<class T>() { return make<T>(runtime, engine, task); });
}

}  // namespace gpt
