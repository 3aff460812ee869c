// Start values like those of Hugging Face's models, from the family's operations: normal with the
// config's deviation, biases 0, weights of norms 1; GPT-2's residual projections divided by sqrt(2
// layers). Element e of a parameter depends on (seed, name, e) alone, so that start values are the
// same at every world size and stage.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "examples/gpt/model/model_config.h"
#include "examples/gpt/model/operations.h"
#include "zero/base/cpu/thread_pool.h"
#include "zero/zero.h"

namespace gpt {

class InitialValues {
 public:
  // The pool must outlive this object.
  InitialValues(const ModelConfig& config, std::uint64_t seed, zero::ThreadPool& pool);

  void fill(const zero::ParamShard& shard) const;

 private:
  std::unordered_map<std::string, Initial> by_name_;
  double deviation_, residual_deviation_;
  std::uint64_t seed_;
  zero::ThreadPool& pool_;
};

}  // namespace gpt
