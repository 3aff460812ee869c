#include "examples/gpt/model/foreign_keys.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

namespace gpt {
namespace {

using Json = nlohmann::json;

struct ForeignKey {
  std::string name;
  std::vector<Json> harmless;  // empty: refused with any value
};

// Keys by the models that have them: Gemma, Granite, MiniCPM and Cohere scale or cap values that
// Llama does not; Phi, GPT-NeoX and GLM rotate a part of the channels; Mistral, Llama 4 and SmolLM
// 3 have layers of several kinds; DeepSeek and Mixtral have experts; Falcon has parallel blocks.
const std::vector<ForeignKey>& foreign_keys() {
  static const std::vector<ForeignKey> table = {{"attention_bias", {false}},
                                                {"mlp_bias", {false}},
                                                {"qkv_bias", {false}},
                                                {"use_bias", {false}},
                                                {"use_qkv_bias", {false}},
                                                {"lm_head_bias", {false}},
                                                {"final_logit_softcapping", {}},
                                                {"attn_logit_softcapping", {}},
                                                {"query_pre_attn_scalar", {}},
                                                {"attention_multiplier", {}},
                                                {"residual_multiplier", {1.0}},
                                                {"embedding_multiplier", {1.0}},
                                                {"logits_scaling", {1.0}},
                                                {"logit_scale", {1.0}},
                                                {"scale_emb", {1.0}},
                                                {"scale_depth", {}},
                                                {"scale_embeddings", {false}},
                                                {"rotary_pct", {1.0}},
                                                {"rotary_dim", {}},
                                                {"rope_interleave", {false}},
                                                {"rope_interleaved", {false}},
                                                {"rope_local_base_freq", {}},
                                                {"rope_ratio", {1.0}},
                                                {"no_rope_layers", {}},
                                                {"no_rope_layer_interval", {}},
                                                {"partial_rotary_factor", {1.0}},
                                                {"use_sliding_window", {false}},
                                                {"attention_chunk_size", {}},
                                                {"qk_norm", {false}},
                                                {"qk_layernorm", {false}},
                                                {"use_qk_norm", {false}},
                                                {"clip_qkv", {}},
                                                {"attn_output_gate", {false}},
                                                {"kv_lora_rank", {}},
                                                {"q_lora_rank", {}},
                                                {"num_experts", {0, 1}},
                                                {"num_local_experts", {0, 1}},
                                                {"n_routed_experts", {0}},
                                                {"multi_query", {false}},
                                                {"parallel_attn", {false}},
                                                {"use_parallel_residual", {false}},
                                                {"alibi", {false}},
                                                {"use_alibi", {false}},
                                                {"add_cross_attention", {false}},
                                                {"is_encoder_decoder", {false}},
                                                {"pruned_heads", {Json::object()}},
                                                {"quantization_config", {}}};
  return table;
}

// Returns whether the name is a key of every config.json, about files, tasks and generation.
bool is_about_other_things(std::string_view name) {
  constexpr std::string_view names[] = {
      "architectures", "bos_token_id",         "dtype",       "eos_token_id",         "model_type",
      "pad_token_id",  "task_specific_params", "torch_dtype", "transformers_version", "use_cache"};
  return std::ranges::find(names, name) != std::ranges::end(names) || name.starts_with('_') ||
         name.starts_with("summary_");
}

std::string shown(const std::string& name) {
  const bool plain = std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
  });
  return plain ? name : Json(name).dump();
}

// Accepts a window of at least the context's length, which hides nothing.
void check_window(ConfigReader& reader, const ModelConfig& config) {
  if (!reader.has("sliding_window")) return;
  const Json window = reader.copy({"sliding_window"}).front();
  if (window == false || (window.is_number() && window >= config.context)) return;
  reader.problem("sliding_window is " + window.dump() +
                 "; this trainer supports null, or a window of the context's " +
                 std::to_string(config.context) + " tokens or more");
}

}  // namespace

void check_foreign_keys(const std::vector<std::string>& own, ConfigReader& reader,
                        ModelConfig& config) {
  constexpr std::size_t most_named = 20;
  std::vector<std::string> unknown;
  for (const std::string& name : reader.keys()) {
    if (std::ranges::find(own, name) != own.end() || is_about_other_things(name)) continue;
    const auto foreign = std::ranges::find(foreign_keys(), name, &ForeignKey::name);
    if (name == "sliding_window")
      check_window(reader, config);
    else if (foreign != foreign_keys().end())
      reader.require(name, foreign->harmless);
    else
      unknown.push_back(shown(name));
  }
  if (unknown.empty()) return;
  std::string names;
  for (std::size_t i = 0; i < std::min(unknown.size(), most_named); ++i)
    names += (i == 0 ? "" : ", ") + unknown[i];
  if (unknown.size() > most_named)
    names += " and " + std::to_string(unknown.size() - most_named) + " more";
  config.notices.push_back(config.name + ": " + names + ": no effect, no keys of " +
                           config.model_type + " that this trainer knows");
}

}  // namespace gpt
