// Walks plans like the engine, and with one declared access removed: the checker's findings and the
// results of independent streams must agree.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/plan_proof.h"
#include "tests/support/sweep.h"
#include "zero/pass/plan_walker.h"

namespace plan_walks {

using zero::detail::Instruction;
using zero::detail::Op;
using zero::detail::PlanInputs;
using zero::detail::PlanWalker;
using zero::detail::Resource;
using zero::detail::ResourceAccess;
using zero::detail::StepPlan;

struct Walked {
  std::vector<const StepPlan*> micro_steps;
  const StepPlan* update;
};

// Chunks that pass through the file's slots one at a time, if the plan requires that.
class Turns {
 public:
  explicit Turns(const zero::detail::OffloadPlan& offload)
      : reads_(!offload.pipeline_read), writes_(!offload.pipeline_write) {}

  // These return whether it is the chunk's turn.
  bool begin_load(int chunk) { return !reads_ || std::exchange(read_, chunk) == nobody; }
  bool begin_update(int chunk) { return !writes_ || std::exchange(written_, chunk) == nobody; }
  void end_update() {
    if (!writes_) read_ = nobody;
  }
  void end_store() { read_ = written_ = nobody; }

 private:
  static constexpr int nobody = -1;

  bool reads_, writes_;
  int read_ = nobody, written_ = nobody;
};

// The position of a walk: the optimizer step, and the micro step in it.
struct Moment {
  int step = 0, micro = 0;
};

// Returns the declared units that use a flat unit.
inline std::vector<int> users_of(const PlanInputs& inputs, int flat_unit) {
  std::vector<int> users;
  for (int unit = 0; unit < std::ssize(inputs.layout->needs_of_unit); ++unit)
    if (inputs.layout->needs(unit, flat_unit)) users.push_back(unit);
  return users;
}

using Streams = zero::detail::ByStream<zero::ExecutionStream*>;

// Queues the instructions of all streams by the same function.
inline PlanWalker::Lanes lanes_of(const Streams& streams,
                                  const std::function<void(const Instruction&)>& issue) {
  PlanWalker::Lanes lanes;
  for (std::size_t s = 0; s < streams.size(); ++s) lanes[s] = {streams[s], issue};
  return lanes;
}

// `queue` takes each compute instruction.
template <class Queue>
void walk_plan(PlanWalker& walker, const StepPlan& plan, const Queue& queue) {
  walker.begin(plan);
  while (const Instruction* next = walker.next_compute()) {
    const Instruction i = *next;
    walker.enter(i.op, i.target);
    // The engine awaits gradient slots at the first use.
    for (const ResourceAccess& access : i.accesses)
      if (access.resource == Resource::gradient_slot && i.op == Op::backward)
        walker.await_gradient(access.index);
    queue(i);
    walker.leave(i.op, i.target);
  }
  walker.finish();
}

// Keeps `now` at the walk's position.
template <class Queue>
void walk_steps(PlanWalker& walker, const Walked& plans, int steps, Moment& now,
                const Queue& queue) {
  const int micro_steps = static_cast<int>(plans.micro_steps.size());
  for (now.step = 0; now.step < steps; ++now.step) {
    for (now.micro = 0; now.micro < micro_steps; ++now.micro)
      walk_plan(walker, *plans.micro_steps[static_cast<std::size_t>(now.micro)], queue);
    now.micro = micro_steps - 1;
    walk_plan(walker, *plans.update, queue);
  }
}

inline std::string proof_of(const PlanInputs& inputs, const Walked& plans, int steps) {
  std::vector<const StepPlan*> sequence;
  for (int step = 0; step < steps; ++step) {
    sequence.insert(sequence.end(), plans.micro_steps.begin(), plans.micro_steps.end());
    sequence.push_back(plans.update);
  }
  return plan_proof::find_fault(inputs, sequence);
}

// Walks with declared accesses of one plan of the step removed in turn, those of `part`; returns the
// number of required ones. `walk` returns the fault that it finds, or nothing.
template <class Walk>
int check_deletions(const PlanInputs& inputs, const Walked& plans, const StepPlan& from, int steps,
                    sweep::Part& part, const Walk& walk) {
  int required = 0;
  for (std::size_t i = 0; i < from.instructions.size(); ++i)
    for (std::size_t a = 0; a < from.instructions[i].accesses.size(); ++a) {
      if (!part.next_is_due()) continue;
      StepPlan broken = from;
      auto& accesses = broken.instructions[i].accesses;
      accesses.erase(accesses.begin() + static_cast<std::ptrdiff_t>(a));
      zero::detail::derive_order(broken);
      Walked without = plans;
      for (const StepPlan*& plan : without.micro_steps)
        if (plan == &from) plan = &broken;
      if (without.update == &from) without.update = &broken;
      const std::string proof = proof_of(inputs, without, steps);
      const std::string seen = walk(without);
      CAPTURE(from.name);
      const std::string op = name_of(from.instructions[i].op);
      const std::string resource = name_of(from.instructions[i].accesses[a].resource);
      CAPTURE(op);
      CAPTURE(from.instructions[i].target);
      CAPTURE(resource);
      CAPTURE(proof);
      CAPTURE(seen);
      CHECK(proof.empty() == seen.empty());
      required += !proof.empty();
    }
  return required;
}

}  // namespace plan_walks
