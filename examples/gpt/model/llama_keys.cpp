#include "examples/gpt/model/llama_keys.h"

#include <algorithm>

namespace gpt {
namespace {

void check_heads(ConfigReader& reader, ModelConfig& config) {
  if (config.key_heads == 0) config.key_heads = config.heads;
  if (config.heads % config.key_heads != 0)
    reader.problem("num_attention_heads " + std::to_string(config.heads) +
                   " must be a multiple of num_key_value_heads " +
                   std::to_string(config.key_heads));
  if (config.head_channels == 0) {
    config.head_channels = std::max<std::int64_t>(1, config.channels / config.heads);
    if (config.channels % config.heads != 0)
      reader.problem("hidden_size " + std::to_string(config.channels) +
                     " must be a multiple of num_attention_heads " + std::to_string(config.heads));
  }
  if (config.head_channels % 2 != 0)
    reader.problem("heads have " + std::to_string(config.head_channels) +
                   " channels: rotary embedding needs an even number");
}

// Newer files list the kind of each layer; all must be full attention.
void require_full_attention(ConfigReader& reader) {
  for (const nlohmann::json& kinds : reader.copy({"layer_types"}))
    for (const nlohmann::json& kind : kinds)
      if (kind != "full_attention")
        return reader.problem("layer_types has " + kind.dump() +
                              "; this trainer supports \"full_attention\"");
}

}  // namespace

std::vector<ConfigKey> llama_keys(double epsilon, const std::vector<ConfigKey>& more) {
  using C = ModelConfig;
  constexpr std::int64_t largest_width = std::int64_t{1} << 20;
  std::vector<ConfigKey> keys = {
      dimension("num_hidden_layers", &C::layers),
      dimension("hidden_size", &C::channels),
      dimension("intermediate_size", &C::inner, largest_width),
      dimension("vocab_size", &C::vocabulary, ConfigReader::largest_vocabulary),
      dimension("max_position_embeddings", &C::context, ConfigReader::largest_vocabulary),
      number("rms_norm_eps", &C::norm_epsilon, epsilon),
      number("initializer_range", &C::initial_deviation, 0.02),
      flag("tie_word_embeddings", &C::tied, false),
      dimension("num_attention_heads", &C::heads),
      optional_dimension("head_dim", &C::head_channels),
      fixed("hidden_act", {"silu", "swish"}),  // two names of a function
      supported("hidden_activation", {"silu", "swish"}),
      supported("activation_function", {"silu", "swish"}),
      supported("position_embedding_type", {"rope", "rotary"}),
      fixed("attention_dropout", {0.0, nullptr}),
      supported("quantization_config", {nullptr}),
      supported("original_max_position_embeddings", {nullptr}),  // belongs into rope_scaling
      kept("bos_token_id"),
      kept("eos_token_id"),
      kept("pad_token_id")};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::vector<std::string> keys_of_check_llama() {
  return {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "layer_types"};
}

void check_llama(ConfigReader& reader, ModelConfig& config) {
  check_heads(reader, config);
  config.rope = read_rope(reader, config.context);
  require_full_attention(reader);
}

void complete_llama(const ModelConfig& config, nlohmann::json& json) {
  write_rope(config.rope, json);
}

}  // namespace gpt
