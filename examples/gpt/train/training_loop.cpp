#include "examples/gpt/train/training_loop.h"

#include <new>

#include "examples/gpt/cpu/model.h"
#include "examples/gpt/train/gpu_training_loop.h"
#include "examples/gpt/train/training_loop_of.h"

namespace gpt {
namespace {

template <class T>
std::unique_ptr<TrainingLoop> make(zero::Runtime& runtime, zero::Engine& engine, const Task& task) {
  const zero::Batch batch = engine.batch();
  try {
    return std::make_unique<TrainingLoopOf<Model<T>>>(
        runtime, engine, task, task.model, batch.micro, task.sequence_length, runtime.pool(),
        task.options.recompute ? Activations::recompute : Activations::keep);
  } catch (const std::bad_alloc&) {
    throw_no_activations(batch, task, "");
  }
}

}  // namespace

std::unique_ptr<TrainingLoop> make_training_loop(zero::Runtime& runtime, zero::Engine& engine,
                                                 const Task& task) {
  if (task.options.device == "cuda") return make_gpu_training_loop(runtime, engine, task);
  return make_of_type(engine.compute_dtype(),
                      [&]<class T>() { return make<T>(runtime, engine, task); });
}

}  // namespace gpt
