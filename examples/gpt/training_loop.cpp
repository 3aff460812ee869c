#include "examples/gpt/training_loop.h"

#include <chrono>
#include <new>

namespace gpt {
namespace {

template <class T>
Model<T> make_model(zero::Runtime& runtime, const zero::Batch& batch, const Task& task) {
  const auto activations = task.options.recompute ? Activations::recompute : Activations::keep;
  try {
    return Model<T>(task.model, batch.micro, task.sequence_length, runtime.pool(), activations);
  } catch (const std::bad_alloc&) {
    throw zero::MemoryError("no memory for the activations of " + std::to_string(batch.micro) +
                            " samples of " + std::to_string(task.sequence_length) +
                            " tokens; lower train_micro_batch_size_per_gpu or "
                            "--sequence-length, or give --recompute");
  }
}

}  // namespace

template <class T>
TrainingLoop<T>::TrainingLoop(zero::Runtime& runtime, zero::Engine& engine, const Task& task)
    : runtime_(runtime),
      engine_(engine),
      batch_(engine.batch()),
      model_(make_model<T>(runtime, batch_, task)),
      step_(engine, model_),
      loader_(*task.data, runtime, batch_, task.sequence_length),
      tokens_(static_cast<double>(batch_.global * task.sequence_length)),
      flops_(tokens_ * flops_per_token(task)) {
  runtime.track("activations", model_.bytes());
}

template <class T>
TrainingRecord TrainingLoop<T>::step(std::int64_t index, bool& stop) {
  const auto start = std::chrono::steady_clock::now();
  for (zero::MicroStep micro : engine_.micro_steps())
    micro.loss(step_.run(loader_.load(index, micro.index()), micro.loss_scale()));
  const zero::StepResult result = engine_.step().wait();
  stop = result.stop_requested;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {.step = index + 1,
          .loss = result.loss,
          .gradient_norm = result.grad_norm,
          .learning_rate = result.learning_rate,
          .seconds = seconds,
          .tokens_per_second = tokens_ / seconds,
          .tflops = flops_ / seconds / 1e12,
          .loss_scale = result.loss_scale,
          .skipped = result.skipped};
}

template class TrainingLoop<float>;
template class TrainingLoop<zero::bf16>;
template class TrainingLoop<zero::fp16>;

}  // namespace gpt
