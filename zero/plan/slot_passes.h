// Chunks on their way through the slots of offload within one plan: read, updated, written; several
// slots in turn do all three at once. Used by those that make plans.
#pragma once

#include <deque>
#include <vector>

#include "zero/plan/plan_emitter.h"

namespace zero::detail {

class SlotPasses {
 public:
  // Both outlive it.
  SlotPasses(const PlanInputs& inputs, PlanEmitter& out) : inputs_(inputs), out_(out) {}

  // The chunk into its slot; `waits` beside the slot's own.
  void load(int chunk, std::vector<EventId> waits);
  // Between the two comes what steps the chunk in its slot; here is what it waits for beside its
  // own reasons.
  std::vector<EventId> waits_of_update(int chunk) const;
  std::vector<EventId> signals_of_update(int chunk) const;
  void store(int chunk, Op op, std::vector<EventId> signals);

 private:
  const PlanInputs& inputs_;
  PlanEmitter& out_;
  int previous_ = -1;  // slot of the chunk before
};

// Updates that run within a micro step, between its scopes, and write their parameters aside:
// read ahead as far as slots are free, run when they are told to.
class AsideUpdates {
 public:
  AsideUpdates(const PlanInputs& inputs, PlanEmitter& out)
      : inputs_(inputs), out_(out), passes_(inputs, out) {}

  // Its gradient is there, or on its way.
  void add(int chunk) { order_.push_back(chunk); }
  bool empty() const { return order_.empty(); }
  int next() const { return order_.front(); }
  // Emits loads for which slots are free.
  void read_ahead();
  void run_next();

 private:
  const Chunk& chunk(int number) const { return inputs_.chunks[static_cast<std::size_t>(number)]; }
  EventId gradient_there(int chunk) const;

  const PlanInputs& inputs_;
  PlanEmitter& out_;
  SlotPasses passes_;
  std::deque<int> order_;
  std::size_t loaded_ = 0;  // of the first in it
};

}  // namespace zero::detail
