// Whether parameters that every rank holds whole are still the same on all of them. Memory that
// fails, or a stray pointer, changes one copy; training would go on with neither model. Compared by
// digests of each flat unit; on CPU ranks; the program's thread.
#pragma once

#include <string>

#include "zero/state/train_state.h"

namespace zero::detail {

// Collective. Throws NumericError on every rank, with the unit and the rank whose copy differs from
// those of most ranks. `when` begins the message: "before the update of step 7".
void verify_replicas(TrainState& train, const std::string& when);

}  // namespace zero::detail
