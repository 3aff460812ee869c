// Memory that a program may not use at the moment, in strict mode on CPU ranks: parameters are
// hidden from the end of a scope until gathered or used again, and gradients written by backward
// from the reduction on. If AddressSanitizer is in the process, any use of hidden memory ends the
// program at that line, and contents stay. Otherwise, parameters that the plan no longer uses read
// as NaN in every dtype, and gradients are zeros, so that later additions are detected.
//
// Belongs to the engine. Gradients are hidden on the communication stream, everything else on the
// program's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "zero/pass/plan_walker.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class HiddenMemory {
 public:
  explicit HiddenMemory(const TrainState& train);

  // False outside of strict mode and on GPUs; then all functions do nothing.
  bool active() const { return active_; }

  // At the end of a scope of a declared unit: hides all parameters that no other open scope uses.
  // Parameters that the plan will use again without a gather keep the contents.
  void hide_parameters(int unit, const PlanWalker& walker) noexcept;
  // Hides all parameters between steps: the next micro step or evaluation gathers all again.
  void hide_all_parameters() noexcept;
  void show_parameters(int flat_unit) noexcept;
  // Call when nothing reads the gradients any more.
  void hide_gradients(int flat_unit) noexcept;
  // Call before the gradients are written again, when the slot is free. Throws UsageError if the
  // program has written to these meanwhile.
  void show_gradients(int flat_unit);
  // Shows all memory before it is freed.
  void show_all() noexcept;

 private:
  // Calls body(memory, bytes) for an array of the whole flat unit, if any.
  template <class Body>
  void for_each(int flat_unit, ArrayKind array, const Body& body) const;

  const TrainState& train_;
  const bool active_, hides_gradients_;
  std::vector<char> gradients_hidden_;  // per flat unit
};

// Whether AddressSanitizer is in the process.
bool sanitizer_watches() noexcept;

}  // namespace zero::detail
