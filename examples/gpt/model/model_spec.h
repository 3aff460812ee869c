// The model in the engine's terms.
#pragma once

#include "examples/gpt/model/model_config.h"
#include "zero/zero.h"

namespace gpt {

// `trains`: false for a model that only runs forward.
zero::ModelSpec describe(const ModelConfig& config, bool trains = true);

}  // namespace gpt
