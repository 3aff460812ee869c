#include "examples/gpt/train/gpu_training_loop.h"

#include <new>
#include <string>

#include "examples/gpt/cuda/device_model.h"
#include "examples/gpt/cuda/product_choices.h"
#include "examples/gpt/train/training_loop_of.h"

namespace gpt {
namespace {

cuda::DeviceChoices choices_of(const Task& task) {
  const Options& o = task.options;
  if (o.any_order_attention && task.config.zero_core.deterministic)
    throw zero::ConfigError(
        "--any-order-attention makes bits that differ from run to run, and zero_core.deterministic "
        "asks for equal ones: "
        "leave one of them out");
  return {.activations = o.recompute ? Activations::recompute : Activations::keep,
          .products = o.separate_products ? Products::apart : Products::joined,
          .attention = {o.any_order_attention, o.attention_workspace}};
}

template <class T>
std::unique_ptr<TrainingLoop> make_on_gpu(zero::Runtime& runtime, zero::Engine& engine,
                                          const Task& task) {
  const zero::Batch batch = engine.batch();
  cuda::waits().set_limit(runtime.rank(), engine.config().zero_core.time_limit_seconds);
  try {
    const cuda::DeviceChoices choices = choices_of(task);
    const HeldActivations held =
        runtime.pipeline_stages() > 1
            ? held_in_stage(part_in_stage(engine, task.model), choices.activations)
            : HeldActivations{held_layers(choices.activations, task.model.layers)};
    auto loop = std::make_unique<TrainingLoopOf<cuda::DeviceModel<T>>>(
        runtime, engine, task, task.model, dims_of(task.model, batch.micro, task.sequence_length),
        static_cast<cudaStream_t>(runtime.stream().handle), choices, held);
    if (!task.options.product_file.empty())
      cuda::choose_products(runtime, loop->model().products(), task.options.product_file);
    return loop;
  } catch (const std::bad_alloc&) {
    throw_no_activations(batch, task, "");
  } catch (const zero::MemoryError& error) {
    throw_no_activations(batch, task, std::string(": ") + error.what());
  }
}

}  // namespace

bool can_train_on_gpu() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count > 0;
  static_cast<void>(cudaGetLastError());
  return false;
}

std::int64_t gpu_memory_bytes() noexcept {
  std::size_t left = 0, all = 0;
  if (cudaMemGetInfo(&left, &all) == cudaSuccess) return static_cast<std::int64_t>(all);
  static_cast<void>(cudaGetLastError());
  return 0;
}

std::unique_ptr<TrainingLoop> make_gpu_training_loop(zero::Runtime& runtime, zero::Engine& engine,
                                                     const Task& task) {
  return make_of_type(engine.compute_dtype(),
                      [&]<class T>() { return make_on_gpu<T>(runtime, engine, task); });
}

}  // namespace gpt
