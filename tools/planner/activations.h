// Computes the bytes of activations, by two models. For the model families of train_gpt: the
// trainer's own buffers, from its block plan. For other decoders: 34 bytes x tokens x channels per
// block, in 16 bits with fused attention (Korthikanti et al., arXiv 2205.05198), or with
// recomputation each block's input and one block in full; in both cases also the logits with their
// gradient in 32 bits.
#pragma once

#include <cstdint>

#include "examples/gpt/model/model_config.h"
#include "tools/planner/model_shape.h"

namespace zero::planner {

std::int64_t activation_bytes(const gpt::ModelConfig& config, const ActivationTerms& terms);

struct BlockSizes {
  std::int64_t layers = 0, hidden = 0, vocabulary = 0;
};
std::int64_t activation_bytes(const BlockSizes& sizes, const ActivationTerms& terms);

}  // namespace zero::planner
