// Conversion of a loss scaler's state to and from a checkpoint's manifest: text by name.
#pragma once

#include <string>

#include "optim/loss_scaler.h"
#include "zero/config.h"

namespace zero::detail {

Text record_of(const optim::LossScalerState& state);

// Throws LoadError, beginning with `path`, for a record that no scaler can have written.
optim::LossScalerState scaler_state_from(const std::string& path, const Text& record);

}  // namespace zero::detail
