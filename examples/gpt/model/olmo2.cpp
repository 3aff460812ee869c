// OLMo 2: like Llama, except that norms follow attention and the MLP instead of preceding them, and
// that all queries and all keys are normed. Names are those of Hugging Face's Olmo2ForCausalLM.
#include "examples/gpt/model/family.h"
#include "examples/gpt/model/llama_keys.h"

namespace gpt {
namespace {

Architecture olmo2(const ModelConfig& config) {
  const std::int64_t c = config.channels, queries = config.heads * config.head_channels,
                     keys = config.key_heads * config.head_channels;
  const LinearOptions attended{.bias = config.attention_bias}, mlp{.bias = false};
  return {.embedding_unit = "model",
          .tokens = "embed_tokens.weight",
          .block_units = "model.layers.",
          .last_norm = "model.norm",
          .classifier_unit = config.tied ? "" : "lm_head",
          .block = {linear("self_attn.q_proj", block_input, "query_product", queries, attended),
                    linear("self_attn.k_proj", block_input, "key_product", keys, attended),
                    linear("self_attn.v_proj", block_input, "value", keys, attended),
                    rms_norm("self_attn.q_norm", "query_product", "query"),
                    rms_norm("self_attn.k_norm", "key_product", "key"), rope("query"), rope("key"),
                    attention({"query", "key", "value"}, "attended"),
                    linear("self_attn.o_proj", "attended", "projected", c, attended),
                    rms_norm("post_attention_layernorm", "projected", "normed_1"),
                    add(block_input, "normed_1", "middle"),
                    linear("mlp.gate_proj", "middle", "gate", config.inner, mlp),
                    linear("mlp.up_proj", "middle", "up", config.inner, mlp),
                    swiglu("gate", "up", "activated"),
                    linear("mlp.down_proj", "activated", "contracted", c, mlp),
                    rms_norm("post_feedforward_layernorm", "contracted", "normed_2"),
                    add("middle", "normed_2", block_output)}};
}

ModelConfig one_billion() {
  ModelConfig config{"olmo2-1b", 16, 16, 2048, 100352, 4096, 1e-6, 0.02, "olmo2", 16, 128, 8192};
  config.rope.theta = 500000;
  config.kept_keys = R"({"bos_token_id": null, "eos_token_id": null, "pad_token_id": null})";
  return config;
}

}  // namespace

const Family& olmo2_family() {
  using C = ModelConfig;
  static const Family family = {
      .model_type = "olmo2",
      .class_name = "Olmo2ForCausalLM",
      .presets = {one_billion()},
      .keys = llama_keys(1e-5, {optional_dimension("num_key_value_heads", &C::key_heads),
                                flag("attention_bias", &C::attention_bias, false)}),
      .more_keys = keys_of_check_llama(),
      .check = check_llama,
      .complete = complete_llama,
      .architecture = olmo2};
  return family;
}

}  // namespace gpt
