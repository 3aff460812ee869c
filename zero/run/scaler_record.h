// A loss scaler's state as a checkpoint's manifest keeps it: text by name.
#pragma once

#include <string>

#include "optim/loss_scaler.h"
#include "zero/config.h"

namespace zero::detail {

Text record_of(const optim::LossScalerState& state);

// Throws LoadError, beginning with `path`, for what no scaler can have written.
optim::LossScalerState scaler_state_from(const std::string& path, const Text& record);

}  // namespace zero::detail
