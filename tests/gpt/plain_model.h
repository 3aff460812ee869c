// The trainer's model on plain arrays, without the engine: one set of values and gradients by
// global name.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "examples/gpt/cpu/model.h"
#include "examples/gpt/model/random.h"

namespace gpt::testing {

using NamedShape = std::pair<std::string, zero::Shape>;

inline std::vector<NamedShape> parameters_of_gpt2(const ModelConfig& config) {
  const std::int64_t c = config.channels;
  std::vector<NamedShape> all = {{"transformer.wte.weight", {config.vocabulary, c}},
                                 {"transformer.wpe.weight", {config.context, c}}};
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string unit = "transformer.h." + std::to_string(layer) + ".";
    for (const char* norm : {"ln_1", "ln_2"})
      for (const char* part : {".weight", ".bias"}) all.push_back({unit + norm + part, {c}});
    const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
      all.push_back({unit + name + ".weight", {in, out}});
      all.push_back({unit + name + ".bias", {out}});
    };
    linear("attn.c_attn", c, 3 * c);
    linear("attn.c_proj", c, c);
    linear("mlp.c_fc", c, 4 * c);
    linear("mlp.c_proj", 4 * c, c);
  }
  all.push_back({"transformer.ln_f.weight", {c}});
  all.push_back({"transformer.ln_f.bias", {c}});
  return all;
}

inline std::vector<NamedShape> parameters_of_llama(const ModelConfig& config) {
  const std::int64_t c = config.channels, queries = config.heads * config.head_channels,
                     keys = config.key_heads * config.head_channels, inner = config.inner;
  const bool qwen2 = config.model_type == "qwen2";
  std::vector<NamedShape> all = {{"model.embed_tokens.weight", {config.vocabulary, c}},
                                 {"model.norm.weight", {c}}};
  if (!config.tied) all.push_back({"lm_head.weight", {config.vocabulary, c}});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string unit = "model.layers." + std::to_string(layer) + ".";
    const bool olmo2 = config.model_type == "olmo2";
    for (const char* norm : {olmo2 ? "post_feedforward_layernorm.weight" : "input_layernorm.weight",
                             "post_attention_layernorm.weight"})
      all.push_back({unit + norm, {c}});
    if (olmo2) all.push_back({unit + "self_attn.q_norm.weight", {queries}});
    if (olmo2) all.push_back({unit + "self_attn.k_norm.weight", {keys}});
    const auto linear = [&](const char* name, std::int64_t out, std::int64_t in, bool bias) {
      all.push_back({unit + name + ".weight", {out, in}});
      if (bias) all.push_back({unit + name + ".bias", {out}});
    };
    linear("self_attn.q_proj", queries, c, config.attention_bias || qwen2);
    linear("self_attn.k_proj", keys, c, config.attention_bias || qwen2);
    linear("self_attn.v_proj", keys, c, config.attention_bias || qwen2);
    linear("self_attn.o_proj", c, queries, config.attention_bias);
    linear("mlp.gate_proj", inner, c, config.mlp_bias);
    linear("mlp.up_proj", inner, c, config.mlp_bias);
    linear("mlp.down_proj", c, inner, config.mlp_bias);
  }
  return all;
}

// Returns name and shape of every parameter.
inline std::vector<NamedShape> parameters_of(const ModelConfig& config) {
  return config.model_type == "gpt2" ? parameters_of_gpt2(config) : parameters_of_llama(config);
}

inline std::int64_t elements_of(const zero::Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

// Returns start values for which no gradient is near zero: weights of norms around 1, all others
// around 0.
template <class T>
std::vector<T> random_values(const std::string& name, std::int64_t count) {
  const CounterRandom random(5, name);
  const bool norm_weight = (name.find("ln_") != std::string::npos && name.ends_with("weight")) ||
                           name.ends_with("norm.weight");
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = 0.6 * (random.uniform(i) - 0.5) + (norm_weight ? 1 : 0);
    if constexpr (std::is_same_v<T, double>)
      values[i] = static_cast<float>(value);
    else
      values[i] = zero::from_float<T>(static_cast<float>(value));
  }
  return values;
}

template <class T>
class PlainModel {
 public:
  PlainModel(const ModelConfig& config, std::int64_t batch, std::int64_t sequence,
             zero::ThreadPool& pool, Activations activations = Activations::keep)
      : config_(config), model_(config, batch, sequence, pool, activations) {
    for (const auto& [name, shape] : parameters_of(config)) {
      values[name] = random_values<T>(name, elements_of(shape));
      gradients[name].resize(values[name].size());
    }
  }

  // Adds the gradients of scale * loss, and returns the loss.
  double run(const MicroBatch& batch, double scale = 1) {
    const PartNames& names = model_.names();
    Arrays embedding(*this, names.embedding_unit), head(*this, names.head_unit);
    model_.embed(batch, embedding);
    for (int layer = 0; layer < model_.layers(); ++layer)
      model_.block(layer, Arrays(*this, names.block_unit(layer)));
    const double loss = model_.head(batch, scale, head);
    for (int layer = model_.layers() - 1; layer >= 0; --layer) {
      Arrays block(*this, names.block_unit(layer));
      model_.block_backward(layer, block);
    }
    model_.embed_backward(batch, embedding);
    return loss;
  }

  void zero_gradients() {
    for (auto& [name, gradient] : gradients) std::fill(gradient.begin(), gradient.end(), T{});
  }

  const ModelConfig& config() const { return config_; }
  const Model<T>& model() const { return model_; }

  std::map<std::string, std::vector<T>> values, gradients;

  // Like the scope of a unit: names are the unit's own, or global.
  class Arrays final : public ParameterGradients<T> {
   public:
    Arrays(PlainModel& model, const std::string& unit) : model_(model), prefix_(unit + ".") {}
    const T* value(std::string_view name) const override {
      return find(model_.values, name).data();
    }
    T* grad(std::string_view name) override { return find(model_.gradients, name).data(); }
    zero::GradTarget<T> target(std::string_view name) override { return {grad(name), 1}; }

   private:
    std::vector<T>& find(std::map<std::string, std::vector<T>>& of, std::string_view name) const {
      const auto own = of.find(prefix_ + std::string(name));
      return own != of.end() ? own->second : of.at(std::string(name));
    }

    PlainModel& model_;
    std::string prefix_;
  };
  Arrays unit(const std::string& name) { return Arrays(*this, name); }

 private:
  ModelConfig config_;
  Model<T> model_;
};

// Random tokens and their targets.
struct RandomBatch {
  RandomBatch(std::int64_t batch, std::int64_t sequence, std::int64_t vocabulary,
              std::uint64_t seed = 1) {
    const CounterRandom random(seed, "tokens");
    for (std::int64_t i = 0; i < batch * sequence; ++i) {
      const auto place = static_cast<std::uint64_t>(i);
      tokens.push_back(static_cast<std::int32_t>(random.bits(2 * place) %
                                                 static_cast<std::uint64_t>(vocabulary)));
      targets.push_back(static_cast<std::int32_t>(random.bits(2 * place + 1) %
                                                  static_cast<std::uint64_t>(vocabulary)));
    }
  }
  MicroBatch view() const { return {tokens, targets}; }

  std::vector<std::int32_t> tokens, targets;
};

}  // namespace gpt::testing
