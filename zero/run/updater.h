// The optimizer's part of a step on this rank: hands ranges of elements to the rules of their
// groups, and brings together what rules must see at once. Most rules see single elements. For
// rules that need tensor norms, all ranks add up order-independent sums once a step; whole matrices
// travel to an owner and back, segment by segment. Results do not depend on how the state is
// sharded.
//
// Works in host memory, on the program's thread, between the agreement and the end of a step.
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
#include "zero/run/matrix_update.h"
#include "zero/runtime/runtime_core.h"
#include "zero/state/state_store.h"

namespace zero::detail {

// What the update of a step depends on, apart from the gradients.
struct UpdateTerms {
  optim::StepScalars scalars;        // common to all groups
  std::optional<double> given_rate;  // StepOptions::learning_rate
};

class Updater {
 public:
  // Runs an operation on the communicator as traffic of a flat unit, and waits for its end.
  using Exchange =
      std::function<void(int flat_unit, const std::function<void(comm::Communicator&, Stream)>&)>;

  // All outlive the Updater.
  Updater(RuntimeCore& runtime, Ranks& ranks, const EnginePlan& plan, ModelState& state,
          StateStore& store, Exchange exchange);

  // Before the first step, once the state has its memory.
  void fill_initial_states();
  // The first half of the update by rules that need tensor norms, for all chunks.
  void measure(const UpdateTerms& terms);
  void update(int chunk, const UpdateTerms& terms);

 private:
  // Elements of a chunk that belong to one group.
  struct Part {
    const ChunkView& chunk;
    int group;
    Range range;
    const float* directions = nullptr;  // instead of the gradient

    // Elements [from, to), counted from its first one.
    Part part(std::int64_t from, std::int64_t to) const {
      return {chunk,
              group,
              {range.begin + from, range.begin + to},
              directions == nullptr ? nullptr : directions + from};
    }
  };

  const optim::Optimizer& rule_of(int group) const { return *plan_.updates.group(group).rule; }
  optim::StepScalars scalars(int group, const UpdateTerms& terms) const {
    return plan_.updates.scalars(group, terms.scalars, terms.given_rate);
  }
  UpdateView view_of(const Part& part) const {
    return part.chunk.part(part.range, plan_.updates.group(part.group).states);
  }
  // Calls each(part, param) for the chunk's parameters whose rule needs tensor norms.
  void for_measured(const ChunkView& chunk,
                    const std::function<void(const Part&, int)>& each) const;
  // Calls each(spans, first element of the part): once, or in blocks where state has 16 bits.
  template <class Each>
  void in_fp32(const Part& part, const Each& each) const;
  void update_part(const Part& part, const optim::StepScalars& scalars);
  void direct(const Part& part, const optim::StepScalars& scalars, float* directions) const;
  void measure_part(const Part& part, const optim::StepScalars& scalars, int param);
  void add_norms_of_parts(Ranks& model_parallel);
  double tensor_norm(int param, int which) const;
  MatrixSteps matrix_steps(const ChunkView& chunk, const UpdateTerms& terms);

  RuntimeCore& runtime_;
  Ranks& ranks_;
  const Model& model_;
  const EnginePlan& plan_;
  ModelState& state_;
  StateStore& store_;
  Exchange exchange_;
};

}  // namespace zero::detail
