// The model in the engine's terms.
#pragma once

#include "examples/gpt/model/model_config.h"
#include "zero/zero.h"

namespace gpt {

// `trains`: false for a model that only runs forward. `passed_tokens`: tokens of a sample, if units
// declare what they pass on, as the stages of a pipeline need; 0: they do not.
zero::ModelSpec describe(const ModelConfig& config, bool trains = true,
                         std::int64_t passed_tokens = 0);

}  // namespace gpt
