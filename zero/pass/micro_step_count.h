// The micro steps of a step, counted. Belongs to Accumulation; for the program's thread.
#pragma once

#include <cstdint>

namespace zero::detail {

struct MicroStepCount {
  static constexpr std::int64_t no_loop = -1;

  int ended() const { return done - free; }

  int done = 0;
  bool all_at_once = false;      // the newest micro step is a list of tasks
  int free = 0;                  // of these, continuations of micro steps that left the plan
  bool more_after_last = false;  // a micro step has followed the declared last
  bool slots_changed = false;    // since the previous micro step: no plan matches the contents
  std::int64_t loops = 0;        // over Engine::micro_steps(), begun so far
  std::int64_t loop = 0;         // of the newest micro step, or no_loop
};

}  // namespace zero::detail
