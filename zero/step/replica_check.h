// Checks that parameters held whole by every rank are equal on all ranks. Failing memory or a stray
// pointer changes one copy, and training would continue with neither model. Compares digests of
// each flat unit; on CPU ranks; for the program's thread.
#pragma once

#include <string>

#include "zero/state/train_state.h"

namespace zero::detail {

// Collective. Throws NumericError on every rank, with the unit and the rank that differs from the
// majority. `when` begins the message: "before the update of step 7".
void verify_replicas(TrainState& train, const std::string& when);

}  // namespace zero::detail
