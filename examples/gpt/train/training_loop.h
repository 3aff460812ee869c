// The training loop, the same at every stage and on every device: loads samples, runs the micro
// steps, measures.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "examples/gpt/train/task.h"
#include "examples/gpt/train/training_record.h"
#include "zero/zero.h"

namespace gpt {

class TrainingLoop {
 public:
  virtual ~TrainingLoop() = default;

  // Runs step number `index`, counted from 0. Returns the record of the last completed step: on a
  // GPU that of the step before, so that the host does not wait. `stop`: set if a signal ends the
  // run.
  virtual std::optional<TrainingRecord> step(std::int64_t index, bool& stop,
                                             const zero::StepOptions& options = {}) = 0;
  // Returns the record that step() has not returned yet.
  virtual std::optional<TrainingRecord> finish() = 0;
  // Returns the name of the attention kernels' origin, empty if there is no choice.
  virtual std::string attention() const = 0;
};

// Makes a loop in the engine's compute type, on the task's device. Allocates the activations.
// Throws MemoryError.
std::unique_ptr<TrainingLoop> make_training_loop(zero::Runtime& runtime, zero::Engine& engine,
                                                 const Task& task);

}  // namespace gpt
