// Llama, and Qwen2, which is a Llama with biases of queries, keys and values: pre-RMSNorm blocks,
// rotary positions, SwiGLU, grouped-query attention; the classifier is tied or a matrix of its own.
// Names are those of Hugging Face's LlamaForCausalLM ("model.layers.0.self_attn.q_proj.weight").
#include <algorithm>
#include <nlohmann/json.hpp>

#include "examples/gpt/family.h"

namespace gpt {
namespace {

void declare_linear(zero::UnitSpec& unit, const std::string& name, zero::Shape shape, bool bias) {
  const std::int64_t out = shape[0];
  unit.param(name + ".weight", std::move(shape));
  if (bias) unit.param(name + ".bias", {out}, no_decay());
}

void declare_block(zero::UnitSpec& unit, const ModelConfig& config) {
  const LlamaConfig& l = *config.llama;
  const std::int64_t c = config.channels, queries = config.heads * l.head_channels,
                     keys = l.key_heads * l.head_channels;
  unit.param("input_layernorm.weight", {c}, no_decay());
  declare_linear(unit, "self_attn.q_proj", {queries, c}, l.query_key_value_bias);
  declare_linear(unit, "self_attn.k_proj", {keys, c}, l.query_key_value_bias);
  declare_linear(unit, "self_attn.v_proj", {keys, c}, l.query_key_value_bias);
  declare_linear(unit, "self_attn.o_proj", {c, queries}, l.output_bias);
  unit.param("post_attention_layernorm.weight", {c}, no_decay());
  declare_linear(unit, "mlp.gate_proj", {l.inner, c}, l.mlp_bias);
  declare_linear(unit, "mlp.up_proj", {l.inner, c}, l.mlp_bias);
  declare_linear(unit, "mlp.down_proj", {c, l.inner}, l.mlp_bias);
}

void read_heads(ConfigReader& reader, ModelConfig& config, LlamaConfig& llama) {
  config.heads = reader.dimension("num_attention_heads");
  // Where it is missing, Qwen2Config has a default of its own, which is nobody's wish.
  const bool given = reader.has("num_key_value_heads") || llama.model_type == "qwen2";
  llama.key_heads = given ? reader.dimension("num_key_value_heads") : config.heads;
  if (config.heads % llama.key_heads != 0)
    reader.problem("num_attention_heads " + std::to_string(config.heads) +
                   " must be a multiple of num_key_value_heads " + std::to_string(llama.key_heads));
  if (reader.has("head_dim")) {
    llama.head_channels = reader.dimension("head_dim");
  } else {
    llama.head_channels = std::max<std::int64_t>(1, config.channels / config.heads);
    if (config.channels % config.heads != 0)
      reader.problem("hidden_size " + std::to_string(config.channels) +
                     " must be a multiple of num_attention_heads " + std::to_string(config.heads));
  }
  if (llama.head_channels % 2 != 0)
    reader.problem("heads have " + std::to_string(llama.head_channels) +
                   " channels: rotary embedding needs an even number");
}

void read_biases(ConfigReader& reader, LlamaConfig& llama) {
  if (llama.model_type == "qwen2") {
    llama.query_key_value_bias = true;
    reader.require("use_sliding_window", {false});
    return;
  }
  llama.query_key_value_bias = llama.output_bias = reader.flag("attention_bias", false);
  llama.mlp_bias = reader.flag("mlp_bias", false);
}

LlamaConfig preset(const char* model_type, std::int64_t key_heads, std::int64_t head_channels,
                   std::int64_t inner) {
  LlamaConfig llama;
  llama.model_type = model_type;
  llama.key_heads = key_heads;
  llama.head_channels = head_channels;
  llama.inner = inner;
  llama.query_key_value_bias = llama.model_type == "qwen2";
  llama.tied = true;
  llama.token_ids = R"({"bos_token_id": null, "eos_token_id": null})";
  return llama;
}

class Llama final : public Family {
 public:
  std::vector<ModelConfig> presets() const override {
    LlamaConfig billion = preset("llama", 8, 64, 8192), qwen = preset("qwen2", 2, 64, 4864);
    billion.rope = {.type = "llama3", .theta = 500000, .factor = 32, .original_context = 8192};
    qwen.rope.theta = 1e6;
    return {{"llama-tiny", 2, 4, 64, 0, 256, 1e-5, 0.02, preset("llama", 2, 16, 176)},
            {"llama-3.2-1b", 16, 32, 2048, 128256, 131072, 1e-5, 0.02, billion},
            {"qwen2-0.5b", 24, 14, 896, 151936, 131072, 1e-6, 0.02, qwen}};
  }

  void read(ConfigReader& reader, ModelConfig& config) const override {
    LlamaConfig llama;
    llama.model_type = reader.text("model_type", "llama");
    config.layers = reader.dimension("num_hidden_layers");
    config.channels = reader.dimension("hidden_size");
    llama.inner = reader.dimension("intermediate_size", std::int64_t{1} << 20);
    config.vocabulary = reader.dimension("vocab_size", ConfigReader::largest_vocabulary);
    config.context = reader.dimension("max_position_embeddings", ConfigReader::largest_vocabulary);
    config.norm_epsilon = reader.number("rms_norm_eps", 1e-6);
    config.initial_deviation = reader.number("initializer_range", 0.02);
    llama.tied = reader.flag("tie_word_embeddings", false);
    read_heads(reader, config, llama);
    read_biases(reader, llama);
    llama.rope = read_rope(reader, config.context);
    reader.require("hidden_act", {"silu", "swish"});  // two names of one function
    reader.require("attention_dropout", {0.0, nullptr});
    reader.require("quantization_config", {nullptr});
    reader.require("original_max_position_embeddings", {nullptr});  // it belongs into rope_scaling
    require_full_attention(reader);
    llama.token_ids = reader.copy({"bos_token_id", "eos_token_id", "pad_token_id"}).dump();
    config.llama = llama;
  }

  nlohmann::json write(const ModelConfig& config) const override {
    const LlamaConfig& l = *config.llama;
    const bool qwen = l.model_type == "qwen2";
    nlohmann::json json = {{"architectures", {qwen ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
                           {"model_type", l.model_type},
                           {"num_hidden_layers", config.layers},
                           {"num_attention_heads", config.heads},
                           {"num_key_value_heads", l.key_heads},
                           {"head_dim", l.head_channels},
                           {"hidden_size", config.channels},
                           {"intermediate_size", l.inner},
                           {"vocab_size", config.vocabulary},
                           {"max_position_embeddings", config.context},
                           {"hidden_act", "silu"},
                           {"rms_norm_eps", config.norm_epsilon},
                           {"initializer_range", config.initial_deviation},
                           {"tie_word_embeddings", l.tied},
                           {"attention_dropout", 0.0}};
    json.update(nlohmann::json::parse(l.token_ids));
    if (qwen) {
      json["use_sliding_window"] = false;
    } else {
      json["attention_bias"] = l.query_key_value_bias;
      json["mlp_bias"] = l.mlp_bias;
    }
    write_rope(l.rope, json);
    return json;
  }

  std::int64_t parameters(const ModelConfig& config) const override {
    const LlamaConfig& l = *config.llama;
    const std::int64_t c = config.channels, queries = config.heads * l.head_channels,
                       keys = l.key_heads * l.head_channels;
    const std::int64_t biases = (l.query_key_value_bias ? queries + 2 * keys : 0) +
                                (l.output_bias ? c : 0) + (l.mlp_bias ? 2 * l.inner + c : 0);
    const std::int64_t block = 2 * c * (queries + keys) + 3 * c * l.inner + 2 * c + biases;
    return (l.tied ? 1 : 2) * config.vocabulary * c + config.layers * block + c;
  }

  std::int64_t looked_up(const ModelConfig& config) const override {
    return config.llama->tied ? 0 : config.vocabulary * config.channels;
  }

  PartNames names(const ModelConfig& config) const override {
    PartNames names = {.embedding_unit = "model",
                       .tokens = "embed_tokens.weight",
                       .positions = "",
                       .block_units = "model.layers.",
                       .head_unit = "model.norm",
                       .norm_weight = "weight",
                       .norm_bias = "",
                       .classifier = "model.embed_tokens.weight"};
    if (!config.llama->tied) {
      names.head_unit = "lm_head";
      names.norm_weight = "model.norm.weight";
      names.classifier = "weight";
    }
    return names;
  }

  // A unit's name begins its parameters' names. So where the classifier is a unit of its own, the
  // last norm, "model.norm.weight", is declared by the unit "model" and used by the classifier's.
  void declare(const ModelConfig& config, zero::ModelSpec& model) const override {
    const PartNames names = this->names(config);
    const std::int64_t c = config.channels;
    const bool tied = config.llama->tied;
    zero::UnitSpec& embedding = model.unit(names.embedding_unit);
    embedding.param(names.tokens, {config.vocabulary, c});
    if (!tied) embedding.param("norm.weight", {c}, no_decay());
    for (std::int64_t layer = 0; layer < config.layers; ++layer)
      declare_block(model.unit(names.block_unit(layer)), config);
    zero::UnitSpec& head = model.unit(names.head_unit);
    if (tied)
      head.param(names.norm_weight, {c}, no_decay()).uses(names.classifier).fused();
    else
      head.param(names.classifier, {config.vocabulary, c}).uses(names.norm_weight).fused();
  }

  Dims dims(const ModelConfig& c) const override {
    return {.channels = c.channels,
            .heads = c.heads,
            .vocabulary = c.vocabulary,
            .epsilon = c.norm_epsilon,
            .norm = NormKind::rms,
            .key_heads = c.llama->key_heads,
            .head_channels = c.llama->head_channels,
            .inner = c.llama->inner};
  }

 private:
  // Newer files of Qwen2 name the kind of each layer.
  static void require_full_attention(ConfigReader& reader) {
    for (const nlohmann::json& kinds : reader.copy({"layer_types"}))
      for (const nlohmann::json& kind : kinds)
        if (kind != "full_attention")
          return reader.problem("layer_types has " + kind.dump() +
                                "; this trainer supports \"full_attention\"");
  }
};

}  // namespace

const Family& llama_family() {
  static const Llama family;
  return family;
}

}  // namespace gpt
