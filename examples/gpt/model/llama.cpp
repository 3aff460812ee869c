// Llama, and Qwen2, a Llama with biases of queries, keys and values: pre-RMSNorm blocks, rotary
// positions, SwiGLU, grouped-query attention; the classifier is tied or a separate matrix. Names
// are those of Hugging Face's LlamaForCausalLM ("model.layers.0.self_attn.q_proj.weight").
#include "examples/gpt/model/family.h"
#include "examples/gpt/model/llama_keys.h"

namespace gpt {
namespace {

struct Biases {
  bool query_key_value, output, mlp;
};

Architecture architecture(const ModelConfig& config, const Biases& biases) {
  const std::int64_t c = config.channels, queries = config.heads * config.head_channels,
                     keys = config.key_heads * config.head_channels;
  const LinearOptions qkv{biases.query_key_value}, output{biases.output}, mlp{biases.mlp};
  return {.embedding_unit = "model",
          .tokens = "embed_tokens.weight",
          .block_units = "model.layers.",
          .last_norm = "model.norm",
          .classifier_unit = config.tied ? "" : "lm_head",
          .block = {rms_norm("input_layernorm", block_input, "normed_1"),
                    linear("self_attn.q_proj", "normed_1", "query", queries, qkv),
                    linear("self_attn.k_proj", "normed_1", "key", keys, qkv),
                    linear("self_attn.v_proj", "normed_1", "value", keys, qkv), rope("query"),
                    rope("key"), attention({"query", "key", "value"}, "attended"),
                    linear("self_attn.o_proj", "attended", "projected", c, output),
                    add(block_input, "projected", "middle"),
                    rms_norm("post_attention_layernorm", "middle", "normed_2"),
                    linear("mlp.gate_proj", "normed_2", "gate", config.inner, mlp),
                    linear("mlp.up_proj", "normed_2", "up", config.inner, mlp),
                    swiglu("gate", "up", "activated"),
                    linear("mlp.down_proj", "activated", "contracted", c, mlp),
                    add("middle", "contracted", block_output)}};
}

Architecture llama(const ModelConfig& config) {
  return architecture(config, {config.attention_bias, config.attention_bias, config.mlp_bias});
}
Architecture qwen2(const ModelConfig& config) {
  return architecture(config, {.query_key_value = true, .output = false, .mlp = false});
}

ModelConfig preset(const ModelConfig& sizes, const RopeConfig& rope) {
  ModelConfig config = sizes;
  config.tied = true;
  config.rope = rope;
  config.kept_keys = R"({"bos_token_id": null, "eos_token_id": null})";
  return config;
}

}  // namespace

const Family& llama_family() {
  using C = ModelConfig;
  static const Family family = {
      .model_type = "llama",
      .class_name = "LlamaForCausalLM",
      .presets = {preset({"llama-tiny", 2, 4, 64, 0, 256, 1e-5, 0.02, "llama", 2, 16, 176}, {}),
                  preset(
                      {"llama-3.2-1b", 16, 32, 2048, 128256, 131072, 1e-5, 0.02, "llama", 8, 64,
                       8192},
                      {.type = "llama3", .theta = 500000, .factor = 32, .original_context = 8192})},
      .keys = llama_keys(1e-6, {optional_dimension("num_key_value_heads", &C::key_heads),
                                flag("attention_bias", &C::attention_bias, false),
                                flag("mlp_bias", &C::mlp_bias, false)}),
      .more_keys = keys_of_check_llama(),
      .check = check_llama,
      .complete = complete_llama,
      .architecture = llama};
  return family;
}

const Family& qwen2_family() {
  static const Family family = {
      .model_type = "qwen2",
      .class_name = "Qwen2ForCausalLM",
      .presets = {preset(
          {"qwen2-0.5b", 24, 14, 896, 151936, 131072, 1e-6, 0.02, "qwen2", 2, 64, 4864},
          {.theta = 1e6})},
      // Required, because Qwen2Config's default for a missing number of key heads fits hardly any
      // model.
      .keys = llama_keys(1e-6,
                         {dimension("num_key_value_heads", &ModelConfig::key_heads),
                          fixed("use_sliding_window", {false}), supported("attention_bias", {true}),
                          // No effect, since use_sliding_window must be off.
                          ignored("sliding_window"), ignored("max_window_layers")}),
      .more_keys = keys_of_check_llama(),
      .check = check_llama,
      .complete = complete_llama,
      .architecture = qwen2};
  return family;
}

}  // namespace gpt
