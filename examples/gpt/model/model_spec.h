// The model in the engine's terms.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/gpt/model/model_config.h"
#include "zero/zero.h"

namespace gpt {

// Terms of a model in stages of a pipeline, whose units declare what they pass on, and their work.
struct InStages {
  std::int64_t tokens = 0;         // of a sample; 0: not in stages
  std::vector<std::int64_t> work;  // per unit, as UnitSpec::work()
};

// `trains`: false for a model that only runs forward.
zero::ModelSpec describe(const ModelConfig& config, bool trains = true, const InStages& in = {});

}  // namespace gpt
