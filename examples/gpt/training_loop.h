// The training loop, the same at every stage: loads samples, runs the micro steps, measures.
#pragma once

#include <cstdint>

#include "examples/gpt/batch_loader.h"
#include "examples/gpt/task.h"
#include "examples/gpt/training_record.h"
#include "examples/gpt/training_step.h"
#include "zero/zero.h"

namespace gpt {

template <class T>
class TrainingLoop {
 public:
  // Takes the memory of the activations. Throws MemoryError.
  TrainingLoop(zero::Runtime& runtime, zero::Engine& engine, const Task& task);
  ~TrainingLoop() { runtime_.track("activations", 0); }
  TrainingLoop(const TrainingLoop&) = delete;

  // Step number `index`, counted from 0. `stop`: a signal asks for the end.
  TrainingRecord step(std::int64_t index, bool& stop);

 private:
  zero::Runtime& runtime_;
  zero::Engine& engine_;
  zero::Batch batch_;
  Model<T> model_;
  TrainingStep<T> step_;
  BatchLoader loader_;
  double tokens_, flops_;
};

// Calls body with the loop in the engine's compute type.
template <class Body>
auto with_training_loop(zero::Runtime& runtime, zero::Engine& engine, const Task& task,
                        const Body& body) {
  if (engine.compute_dtype() == zero::DType::bf16) {
    TrainingLoop<zero::bf16> loop(runtime, engine, task);
    return body(loop);
  }
  if (engine.compute_dtype() == zero::DType::fp16) {
    TrainingLoop<zero::fp16> loop(runtime, engine, task);
    return body(loop);
  }
  TrainingLoop<float> loop(runtime, engine, task);
  return body(loop);
}

}  // namespace gpt
