// The update of rules that need whole matrices (Muon), queued on a device: directions of a
// segment's matrices travel to their owners, are made orthogonal there, and travel back. As
// updater.h does it on the host, with its bits. Queued whether the step is applied or not: a step
// that is skipped moves directions that nobody takes.
#pragma once

#include <functional>

#include "optim/device_orthogonalize.h"
#include "zero/plan/engine_plan.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/state_store.h"

namespace zero::detail {

class DeviceMatrices {
 public:
  // Queues an operation as traffic of a flat unit, between what is queued on the compute stream
  // before and after.
  using Travel = std::function<void(int flat_unit, Ranks::Transfer)>;

  // All outlive it.
  DeviceMatrices(RuntimeCore& runtime, const EnginePlan& plan, const ModelState& state,
                 Travel travel);

  // `common` has what all launches of a step share: the factors.
  struct Terms {
    optim::DeviceUpdate common;
    const optim::StepVerdict* verdict = nullptr;
    optim::NormSum* norm = nullptr;  // of one matrix at a time
  };
  void update(int chunk, const ChunkView& view, const Terms& terms);

 private:
  struct OpenChunk {
    Chunk chunk;
    const ChunkView& view;
    const SegmentBuffers& buffers;
  };

  // Calls each(matrix, update, directions) for this rank's elements of the batch, in the order in
  // which they are sent.
  template <class Each>
  void for_directions(const OpenChunk& open, const MatrixBatch& batch, const Terms& terms,
                      const Each& each) const;
  void orthogonalize(int flat_unit, const MatrixBatch& batch, const Terms& terms);
  // Returns where the next matrix begins.
  float* orthogonalize(const PlannedMatrix& matrix, float* values, const Terms& terms);
  void queue(std::function<void(Stream)> work) { runtime_.compute().enqueue(std::move(work)); }

  RuntimeCore& runtime_;
  const EnginePlan& plan_;
  const ModelState& state_;
  Travel travel_;
};

}  // namespace zero::detail
