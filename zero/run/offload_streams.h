// The streams of the plan on which state moves between the places where it rests and the places
// where it is used: from and to the file, from and to a GPU, and the host's own work beside a GPU.
// Streams that have nothing to do run inline. Owned by the engine; calls queue, on the program's
// thread.
#pragma once

#include <functional>
#include <memory>

#include "zero/base/stream.h"
#include "zero/checkpoint/checkpoints.h"
#include "zero/run/step_agreement.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class OffloadStreams {
 public:
  // On a GPU the agreement hears of what fails here.
  OffloadStreams(TrainState& train, StepAgreement& agreement, Checkpoints& checkpoints);

  // Those of PlanStream; null for the others.
  ExecutionStream* stream(PlanStream stream) const { return streams_[stream].get(); }

  // An instruction of the plan for one of these streams, but for updates on the host.
  void issue(const Instruction& instruction);
  // Work of a thread of its own, as the host's part of a chunk's update, in the order of the
  // instruction's stream: waits at random where tests ask for it, and tells the device of a
  // failure.
  void enqueue(const Instruction& instruction, std::function<void()> work);
  // Between steps: a flat unit's parameter shard, to the buffer from which it is gathered. Waits.
  void fetch_shard(int flat_unit);

  // Waits for what the streams have been given.
  void finish() {
    for (const auto& stream : streams_)
      if (stream) stream->synchronize();
  }
  // Likewise; what has failed on them was thrown elsewhere.
  void finish_quietly() noexcept;
  // Throws what has failed on them.
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
  StepAgreement& agreement_;
  Checkpoints& checkpoints_;
  ByStream<std::unique_ptr<ExecutionStream>> streams_;
};

}  // namespace zero::detail
