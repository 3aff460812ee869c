// GPT-2 as the engine sees it. Global names are those of Hugging Face's GPT2LMHeadModel
// ("transformer.h.0.attn.c_attn.weight"), so checkpoints need no translation.
#pragma once

#include <string>

#include "examples/gpt/model_config.h"
#include "zero/zero.h"

namespace gpt {

inline constexpr const char* embedding_unit = "transformer";
inline constexpr const char* head_unit = "transformer.ln_f";
inline constexpr const char* embedding_name = "transformer.wte.weight";

std::string block_unit(std::int64_t layer);

zero::ModelSpec describe(const ModelConfig& config);

}  // namespace gpt
