// The streams of the plan that move state between its home and the places of use: from and to the
// file, from and to a GPU, and the host's own work on GPU ranks. Unused streams run inline. Belongs
// to the engine; calls queue work, on the program's thread.
#pragma once

#include <functional>
#include <memory>

#include "zero/base/stream.h"
#include "zero/state/step_scalars.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class OffloadStreams {
 public:
  // On a GPU, failures here are noted in the scalars.
  OffloadStreams(TrainState& train, StepScalars& scalars);

  // Returns the stream of a PlanStream; null for the remaining streams.
  ExecutionStream* stream(PlanStream stream) const { return streams_[stream].get(); }

  // Issues an instruction of the plan for one of these streams, except for updates.
  void issue(const Instruction& instruction);
  // Queues work of a separate thread, such as the host's part of a chunk's update, in the order of
  // the instruction's stream: waits at random if tests request it, and reports a failure to the
  // device.
  void enqueue(const Instruction& instruction, std::function<void()> work);
  // Copies a flat unit's parameter shard to the source buffer of the gather, between steps. Waits.
  void fetch_shard(int flat_unit);

  // For changes of state between the ranks' agreement and the updates: loads the first chunk of
  // each slot again, which may have been loaded before; all others follow an update. Waits.
  void load_again();

  // Waits for all queued work.
  void finish() {
    for (const auto& stream : streams_)
      if (stream) stream->synchronize();
  }
  // Does the same, ignoring failures, because these were thrown elsewhere.
  void finish_quietly() noexcept;
  // Throws any failure of the streams.
  void check() {
    for (const auto& stream : streams_)
      if (stream) stream->check();
  }

 private:
  void issue_copy(const Instruction& instruction);
  const std::string& unit_of(const Instruction& instruction) const {
    return train_.layout().flat_unit(flat_unit_of(instruction, train_.plan.inputs.chunks)).name;
  }

  TrainState& train_;
  StepScalars& scalars_;
  ByStream<std::unique_ptr<ExecutionStream>> streams_;
};

}  // namespace zero::detail
