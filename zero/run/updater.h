// The optimizer's part of a step on this rank: hands every range to the rule of its group, and
// brings together what rules must see at once. Rules that see elements alone need nothing else; for
// tensor norms all ranks add up order-independent sums once a step; whole matrices travel to an
// owner and back, segment by segment. The results do not depend on how the state is cut.
//
// Host memory; the program's thread, between the agreement and the end of a step.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "optim/gradient_norm.h"
#include "zero/plan/engine_plan.h"
#include "zero/run/fp32_staging.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/state_store.h"

namespace zero::detail {

// What a step's update follows from.
struct UpdateTerms {
  optim::StepScalars scalars;        // without what groups differ in
  std::optional<double> given_rate;  // StepOptions::learning_rate
};

class Updater {
 public:
  // Runs an operation on the communicator as traffic of a flat unit, and waits for it.
  using Exchange =
      std::function<void(int flat_unit, const std::function<void(comm::Communicator&, Stream)>&)>;

  // All outlive the Updater.
  Updater(RuntimeCore& runtime, Ranks& ranks, const EnginePlan& plan, ModelState& state,
          StateStore& store, Exchange exchange);

  // Before the first step, once the state has its memory.
  void fill_initial_states();
  // The first half of rules that need tensor norms, for all chunks.
  void measure(const UpdateTerms& terms);
  void update(int chunk, const UpdateTerms& terms);

 private:
  // A range of elements of a chunk and one group; positions from the start of the segment.
  struct Range {
    const ChunkView& view;
    const SegmentBuffers& buffers;
    const UpdateRun& run;
    std::int64_t begin, end;
    const float* directions = nullptr;  // instead of the gradient

    Range part(std::int64_t from, std::int64_t to) const;
  };
  struct OpenChunk {
    Chunk chunk;
    ChunkView view;
    const SegmentBuffers& buffers;
  };

  OpenChunk open(int chunk) const;
  optim::UpdateScope scope_of(const UpdateRun& run) const {
    return plan_.updates.group(run.group).rule->scope();
  }
  optim::StepScalars scalars(const UpdateRun& run, const UpdateTerms& terms) const {
    return plan_.updates.scalars(run.group, terms.scalars, terms.given_rate);
  }
  // Calls each(range, param) for the parts of the chunk's parameters whose rule sees tensor norms.
  void for_measured(const OpenChunk& open,
                    const std::function<void(const Range&, int)>& each) const;
  StateAtRest at_rest(const Range& range) const;
  optim::UpdateSpans spans_of(const Range& range) const;
  // Calls each(spans, first element of the range): once, or in blocks where state rests in 16 bits.
  template <class Each>
  void in_fp32(const Range& range, const Each& each) const;
  void update_range(const Range& range, const optim::StepScalars& scalars);
  void direct(const Range& range, const optim::StepScalars& scalars, float* directions) const;
  void measure_range(const Range& range, const optim::StepScalars& scalars, int param);
  void add_norms_of_parts(Ranks& model_parallel);
  double tensor_norm(int param, int which) const;
  void update_matrices(const OpenChunk& open, const MatrixBatch& batch, const UpdateTerms& terms);
  void orthogonalize(const OpenChunk& open, const MatrixBatch& batch);
  // Calls each(matrix, range, directions) for this rank's elements of the batch, in the order in
  // which they are sent.
  template <class Each>
  void for_directions(const OpenChunk& open, const MatrixBatch& batch, const Each& each);

  RuntimeCore& runtime_;
  Ranks& ranks_;
  const Model& model_;
  const EnginePlan& plan_;
  ModelState& state_;
  StateStore& store_;
  Exchange exchange_;
};

}  // namespace zero::detail
