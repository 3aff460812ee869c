// Visits of this rank's elements of trained parameters by the program (Engine::visit).
#pragma once

#include <optional>

#include "zero/state/train_state.h"

namespace zero::detail {

// Calls the visitor for all pieces, then updates all copies of what it has changed. With a scale,
// the pieces have gradients, multiplied by it. Collective; for the program's thread, while no
// update runs. Returns whether any rank has changed values.
bool visit_elements(TrainState& train, const ElementVisitor& visitor,
                    std::optional<float> gradient_scale);

}  // namespace zero::detail
