// The model as the engine sees it.
#pragma once

#include "examples/gpt/model_config.h"
#include "zero/zero.h"

namespace gpt {

zero::ModelSpec describe(const ModelConfig& config);

}  // namespace gpt
