// Start values as Hugging Face's models have them: normal with the config's deviation, biases 0,
// weights of norms 1; GPT-2's residual projections divided by sqrt(2 layers). Element e of a
// parameter depends on (seed, name, e) alone, so that start values are the same at every world size
// and stage.
#pragma once

#include <cstdint>

#include "examples/gpt/model_config.h"
#include "zero/base/cpu/thread_pool.h"
#include "zero/zero.h"

namespace gpt {

void fill_initial_values(const ModelConfig& config, std::uint64_t seed, zero::ThreadPool& pool,
                         const zero::ParamShard& shard);

}  // namespace gpt
