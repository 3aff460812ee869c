// GPT-2: learned positions, pre-LayerNorm blocks, tied classifier. Names are those of Hugging
// Face's GPT2LMHeadModel ("transformer.h.0.attn.c_attn.weight").
#include <nlohmann/json.hpp>

#include "examples/gpt/family.h"

namespace gpt {
namespace {

void declare_norm(zero::UnitSpec& unit, const std::string& prefix, std::int64_t channels) {
  unit.param(prefix + "weight", {channels}, no_decay())
      .param(prefix + "bias", {channels}, no_decay());
}

void declare_linear(zero::UnitSpec& unit, const std::string& prefix, std::int64_t in,
                    std::int64_t out) {
  unit.param(prefix + ".weight", {in, out}).param(prefix + ".bias", {out}, no_decay());
}

// Every published GPT-2 has these keys, so they are no reason to refuse one.
void note_dropout(const ConfigReader& reader, ModelConfig& config) {
  std::string found;
  const nlohmann::json keys = reader.copy({"attn_pdrop", "embd_pdrop", "resid_pdrop"});
  for (const auto& [key, value] : keys.items())
    if (value != 0) found += (found.empty() ? "" : ", ") + key + " " + value.dump();
  if (!found.empty())
    config.notices.push_back(config.name + ": " + found +
                             ": no effect, this trainer has no dropout");
}

class Gpt2 final : public Family {
 public:
  std::vector<ModelConfig> presets() const override {
    return {{"tiny", 2, 2, 64, 0, 256},
            {"mini", 4, 4, 128, 0, 256},
            {"gpt2", 12, 12, 768, 50257, 1024},
            {"gpt2-medium", 24, 16, 1024, 50257, 1024},
            {"gpt2-large", 36, 20, 1280, 50257, 1024},
            {"gpt2-xl", 48, 25, 1600, 50257, 1024}};
  }

  void read(ConfigReader& reader, ModelConfig& config) const override {
    config.layers = reader.dimension("n_layer");
    config.heads = reader.dimension("n_head");
    config.channels = reader.dimension("n_embd");
    config.vocabulary = reader.dimension("vocab_size", ConfigReader::largest_vocabulary);
    const bool other_name = !reader.has("n_positions") && reader.has("n_ctx");
    config.context = reader.dimension(other_name ? "n_ctx" : "n_positions");
    config.norm_epsilon = reader.number("layer_norm_epsilon", 1e-5);
    config.initial_deviation = reader.number("initializer_range", 0.02);
    if (config.channels % config.heads != 0)
      reader.problem("n_embd " + std::to_string(config.channels) +
                     " must be a multiple of n_head " + std::to_string(config.heads));
    // The second is transformers' other name of the same function.
    reader.require("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
    reader.require("n_inner", {nullptr, 4 * config.channels});
    reader.require("tie_word_embeddings", {true});
    reader.require("scale_attn_weights", {true});
    reader.require("scale_attn_by_inverse_layer_idx", {false});
    reader.require("reorder_and_upcast_attn", {false});
    reader.require("add_cross_attention", {false});
    note_dropout(reader, config);
  }

  nlohmann::json write(const ModelConfig& config) const override {
    const bool gpt2_tokens = config.vocabulary == 50257;
    const nlohmann::json end_of_text = gpt2_tokens ? nlohmann::json(50256) : nullptr;
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"n_layer", config.layers},
            {"n_head", config.heads},
            {"n_embd", config.channels},
            {"n_inner", nullptr},
            {"vocab_size", config.vocabulary},
            {"n_positions", config.context},
            {"n_ctx", config.context},
            {"activation_function", "gelu_new"},
            {"layer_norm_epsilon", config.norm_epsilon},
            {"initializer_range", config.initial_deviation},
            {"scale_attn_weights", true},
            {"tie_word_embeddings", true},
            {"attn_pdrop", 0.0},
            {"embd_pdrop", 0.0},
            {"resid_pdrop", 0.0},
            {"bos_token_id", end_of_text},
            {"eos_token_id", end_of_text}};
  }

  std::int64_t parameters(const ModelConfig& c) const override {
    const std::int64_t block = 12 * c.channels * c.channels + 13 * c.channels;
    return (c.vocabulary + c.context) * c.channels + c.layers * block + 2 * c.channels;
  }

  std::int64_t looked_up(const ModelConfig& c) const override { return c.context * c.channels; }

  PartNames names(const ModelConfig&) const override {
    return {.embedding_unit = "transformer",
            .tokens = "wte.weight",
            .positions = "wpe.weight",
            .block_units = "transformer.h.",
            .head_unit = "transformer.ln_f",
            .norm_weight = "weight",
            .norm_bias = "bias",
            .classifier = "transformer.wte.weight"};
  }

  void declare(const ModelConfig& config, zero::ModelSpec& model) const override {
    const PartNames names = this->names(config);
    const std::int64_t c = config.channels;
    model.unit(names.embedding_unit)
        .param(names.tokens, {config.vocabulary, c})
        .param(names.positions, {config.context, c});
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      zero::UnitSpec& unit = model.unit(names.block_unit(layer));
      declare_norm(unit, "ln_1.", c);
      declare_linear(unit, "attn.c_attn", c, 3 * c);
      declare_linear(unit, "attn.c_proj", c, c);
      declare_norm(unit, "ln_2.", c);
      declare_linear(unit, "mlp.c_fc", c, 4 * c);
      declare_linear(unit, "mlp.c_proj", 4 * c, c);
    }
    zero::UnitSpec& head = model.unit(names.head_unit);
    declare_norm(head, "", c);
    head.uses(names.classifier).fused();
  }

  Dims dims(const ModelConfig& c) const override {
    return {.channels = c.channels,
            .heads = c.heads,
            .vocabulary = c.vocabulary,
            .epsilon = c.norm_epsilon,
            .norm = NormKind::layer,
            .key_heads = c.heads,
            .head_channels = c.channels / c.heads,
            .inner = 4 * c.channels};
  }
};

}  // namespace

const Family& gpt2_family() {
  static const Gpt2 family;
  return family;
}

}  // namespace gpt
