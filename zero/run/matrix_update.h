// The update by rules that need whole matrices (Muon), as host and device both carry it out:
// directions of a segment's matrices travel to the ranks that own them, are made orthogonal there,
// and travel back.
#pragma once

#include <functional>

#include "zero/plan/engine_plan.h"
#include "zero/state/state_store.h"

namespace zero::detail {

struct MatrixSteps {
  // Writes the directions of this rank's range of the matrix.
  std::function<void(const PlannedMatrix&, const Range&, float* directions)> direct;
  std::function<void(const float* from, float* to, const comm::PairCounts&)> travel;
  std::function<void(const PlannedMatrix&, float* values)> orthogonalize;
  // Steps along the directions.
  std::function<void(const PlannedMatrix&, const Range&, const float* directions)> step;
};

// Calls each(matrix, range, directions) for this rank's ranges of the batch, in the order in which
// they are sent.
template <class Each>
void for_directions(const EnginePlan& plan, const MatrixBatch& batch, const ChunkView& chunk,
                    float* directions, const Each& each) {
  for (int owner = 0; owner < plan.layout.ranks; ++owner)
    for (const PlannedMatrix& matrix : batch.matrices) {
      const Range own = intersection(matrix.range, chunk.range);
      if (matrix.owner != owner || own.empty()) continue;
      each(matrix, own, directions);
      directions += own.count();
    }
}

inline void update_matrices(const EnginePlan& plan, const ModelState& state, const ChunkView& chunk,
                            const MatrixSteps& steps) {
  const bool sharded = plan.matrices.sharded();
  for (const MatrixBatch& batch : plan.matrices.batches(chunk.id)) {
    for_directions(plan, batch, chunk, state.directions(), steps.direct);
    if (sharded) steps.travel(state.directions(), state.matrices(), batch.counts);
    float* next = sharded ? state.matrices() : state.directions();
    for (const PlannedMatrix& matrix : batch.matrices) {
      if (sharded && matrix.owner != plan.policy.rank) continue;
      steps.orthogonalize(matrix, next);
      next += matrix.range.count();
    }
    if (sharded) steps.travel(state.matrices(), state.directions(), batch.way_back);
    for_directions(plan, batch, chunk, state.directions(), steps.step);
  }
}

}  // namespace zero::detail
