// GPT-2: learned positions, pre-LayerNorm blocks, GELU, tied classifier. Names are those of Hugging
// Face's GPT2LMHeadModel ("transformer.h.0.attn.c_attn.weight").
#include "examples/gpt/model/family.h"

namespace gpt {
namespace {

std::vector<ConfigKey> keys() {
  ConfigKey context = dimension("n_positions", &ModelConfig::context);
  context.other_name = "n_ctx";
  return {dimension("n_layer", &ModelConfig::layers), dimension("n_head", &ModelConfig::heads),
          dimension("n_embd", &ModelConfig::channels),
          dimension("vocab_size", &ModelConfig::vocabulary, ConfigReader::largest_vocabulary),
          context, number("layer_norm_epsilon", &ModelConfig::norm_epsilon, 1e-5),
          number("initializer_range", &ModelConfig::initial_deviation, 0.02),
          // The second value is transformers' other name of the same function.
          fixed("activation_function", {"gelu_new", "gelu_pytorch_tanh"}),
          fixed("tie_word_embeddings", {true}), fixed("scale_attn_weights", {true}),
          supported("scale_attn_by_inverse_layer_idx", {false}),
          supported("reorder_and_upcast_attn", {false}), supported("add_cross_attention", {false}),
          supported("attention_bias", {true}), supported("mlp_bias", {true}),
          supported("hidden_act", {"gelu_new", "gelu_pytorch_tanh"}),
          supported("position_embedding_type", {"absolute"})};
}

void check(ConfigReader& reader, ModelConfig& config) {
  if (config.channels % config.heads != 0)
    reader.problem("n_embd " + std::to_string(config.channels) + " must be a multiple of n_head " +
                   std::to_string(config.heads));
  reader.require("n_inner", {nullptr, 4 * config.channels});
  // Transformers accepts these names as synonyms.
  reader.require("hidden_size", {config.channels});
  reader.require("num_hidden_layers", {config.layers});
  reader.require("num_attention_heads", {config.heads});
  reader.require("max_position_embeddings", {config.context});
  // Every published GPT-2 has these keys, so they only give a notice.
  std::string found;
  const nlohmann::json dropout = reader.copy({"attn_pdrop", "embd_pdrop", "resid_pdrop"});
  for (const auto& [key, value] : dropout.items())
    if (!value.is_null() && value != 0)
      found += (found.empty() ? "" : ", ") + key + " " + value.dump();
  if (!found.empty())
    config.notices.push_back(config.name + ": " + found +
                             ": no effect, this trainer has no dropout");
}

void complete(const ModelConfig& config, nlohmann::json& json) {
  json["n_inner"] = nullptr;
  for (const char* dropout : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) json[dropout] = 0.0;
  const bool gpt2_tokens = config.vocabulary == 50257;
  json["bos_token_id"] = json["eos_token_id"] = gpt2_tokens ? nlohmann::json(50256) : nullptr;
}

Architecture gpt2(const ModelConfig& config) {
  const std::int64_t c = config.channels;
  const LinearOptions conv1d{.layout = WeightLayout::in_out},
      residual{.layout = WeightLayout::in_out, .initial = Initial::residual};
  return {
      .embedding_unit = "transformer",
      .tokens = "wte.weight",
      .positions = "wpe.weight",
      .block_units = "transformer.h.",
      .last_norm = "transformer.ln_f",
      .norm = NormKind::layer,
      .block = {
          layer_norm("ln_1", block_input, "normed_1"),
          linear("attn.c_attn", "normed_1", "qkv", 3 * c, conv1d), attention({"qkv"}, "attended"),
          linear("attn.c_proj", "attended", "projected", c, residual),
          add(block_input, "projected", "middle"), layer_norm("ln_2", "middle", "normed_2"),
          linear("mlp.c_fc", "normed_2", "expanded", 4 * c, conv1d), gelu("expanded", "activated"),
          linear("mlp.c_proj", "activated", "contracted", c, residual),
          add("middle", "contracted", block_output)}};
}

}  // namespace

const Family& gpt2_family() {
  static const Family family = {
      .model_type = "gpt2",
      .class_name = "GPT2LMHeadModel",
      .presets = {{"tiny", 2, 2, 64, 0, 256},
                  {"mini", 4, 4, 128, 0, 256},
                  {"gpt2", 12, 12, 768, 50257, 1024},
                  {"gpt2-medium", 24, 16, 1024, 50257, 1024},
                  {"gpt2-large", 36, 20, 1280, 50257, 1024},
                  {"gpt2-xl", 48, 25, 1600, 50257, 1024}},
      .keys = keys(),
      .more_keys = {"n_inner", "attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_size",
                    "num_hidden_layers", "num_attention_heads", "max_position_embeddings"},
      .check = check,
      .complete = complete,
      .architecture = gpt2};
  return family;
}

}  // namespace gpt
