// The training loop, the same at every stage and on every device: loads samples, runs the micro
// steps, measures.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "examples/gpt/task.h"
#include "examples/gpt/training_record.h"
#include "zero/zero.h"

namespace gpt {

class TrainingLoop {
 public:
  virtual ~TrainingLoop() = default;

  // Step number `index`, counted from 0. Returns the record of the last step whose result is there:
  // on a GPU that of the step before, so that nothing waits for it. `stop`: a signal asks for the
  // end.
  virtual std::optional<TrainingRecord> step(std::int64_t index, bool& stop,
                                             const zero::StepOptions& options = {}) = 0;
  // The record that is still out.
  virtual std::optional<TrainingRecord> finish() = 0;
  // By whose kernels attention is, where there is a choice.
  virtual std::string attention() const = 0;
};

// In the engine's compute type, where the task's device is. Takes the memory of the activations.
// Throws MemoryError.
std::unique_ptr<TrainingLoop> make_training_loop(zero::Runtime& runtime, zero::Engine& engine,
                                                 const Task& task);

}  // namespace gpt
