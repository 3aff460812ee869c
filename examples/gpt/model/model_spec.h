// The model in the engine's terms.
#pragma once

#include "examples/gpt/model/model_config.h"
#include "zero/zero.h"

namespace gpt {

zero::ModelSpec describe(const ModelConfig& config);

}  // namespace gpt
