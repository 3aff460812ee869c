// Visits of this rank's elements of trained parameters by the program (Engine::visit).
#pragma once

#include <optional>

#include "zero/state/train_state.h"

namespace zero::detail {

// Calls the visitor for all pieces, then updates all copies of changed elements. With a scale, the
// pieces have gradients, multiplied by the scale. Collective; for the program's thread, while no
// update runs. Returns whether any rank has changed values.
bool visit_elements(TrainState& train, const ElementVisitor& visitor,
                    std::optional<float> gradient_scale);

}  // namespace zero::detail
