// Memory that a program may not use now, in strict mode on CPU ranks: from the end of a scope on
// its parameters are hidden, until they are gathered or used again; and what backward writes, from
// its reduction on. With AddressSanitizer in the process, any use of hidden memory ends the program
// at that line, and contents stay. Without it, parameters that the plan has done with read as NaN
// in every dtype, and gradients are zeros, so that it is seen when something was added to them.
//
// Owned by the engine. Gradients are hidden on the communication stream, all else on the program's
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "zero/run/plan_walker.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class HiddenMemory {
 public:
  explicit HiddenMemory(const TrainState& train);

  // Outside of strict mode and on GPUs nothing is hidden, and the rest does nothing.
  bool active() const { return active_; }

  // At the end of a scope of a declared unit: all that no other open scope uses. What the plan will
  // use again as it lies keeps its contents.
  void hide_parameters(int unit, const PlanWalker& walker) noexcept;
  // Between steps: the next micro step, and the next evaluation, gather everything anew.
  void hide_all_parameters() noexcept;
  void show_parameters(int flat_unit) noexcept;
  // When nothing reads them any more.
  void hide_gradients(int flat_unit) noexcept;
  // Before they are written again, when their slot is free. Throws UsageError where the program has
  // written them meanwhile.
  void show_gradients(int flat_unit);
  // Memory goes back to the system as it came.
  void show_all() noexcept;

 private:
  using Array = std::byte* SegmentBuffers::*;
  // Calls body(memory, bytes) for an array of the whole flat unit, where there is one.
  template <class Body>
  void for_each(int flat_unit, Array array, const Body& body) const;

  const TrainState& train_;
  const bool active_, hides_gradients_;
  std::vector<char> gradients_hidden_;  // by flat unit
};

// Whether AddressSanitizer is in the process.
bool sanitizer_watches() noexcept;

}  // namespace zero::detail
