// The trainer's model on plain arrays, without the engine: one set of values and gradients by
// global name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "examples/gpt/model.h"
#include "examples/gpt/model_spec.h"
#include "examples/gpt/random.h"

namespace gpt::testing {

// Name and shape of every parameter.
inline std::vector<std::pair<std::string, zero::Shape>> parameters_of(const ModelConfig& config) {
  const std::int64_t c = config.channels;
  std::vector<std::pair<std::string, zero::Shape>> all = {
      {"transformer.wte.weight", {config.vocabulary, c}},
      {"transformer.wpe.weight", {config.context, c}}};
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string unit = block_unit(layer) + ".";
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

inline std::int64_t elements_of(const zero::Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

// Start values that leave no gradient near zero: LayerNorm weights around 1, all others around 0.
template <class T>
std::vector<T> random_values(const std::string& name, std::int64_t count) {
  const CounterRandom random(5, name);
  const bool norm_weight = name.find("ln_") != std::string::npos && name.ends_with("weight");
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
    model_.embed(batch, {value("transformer.wte.weight"), value("transformer.wpe.weight")});
    for (int layer = 0; layer < model_.layers(); ++layer) model_.block(layer, block_values(layer));
    const double loss =
        model_.head(batch, scale,
                    {{value("transformer.ln_f.weight"), value("transformer.ln_f.bias")},
                     value("transformer.wte.weight")},
                    {{grad("transformer.ln_f.weight"), grad("transformer.ln_f.bias")},
                     target("transformer.wte.weight")});
    for (int layer = model_.layers() - 1; layer >= 0; --layer)
      model_.block_backward(layer, block_values(layer), block_gradients(layer));
    model_.embed_backward(batch, {grad("transformer.wte.weight"), grad("transformer.wpe.weight")});
    return loss;
  }

  void zero_gradients() {
    for (auto& [name, gradient] : gradients) std::fill(gradient.begin(), gradient.end(), T{});
  }

  const ModelConfig& config() const { return config_; }
  const Model<T>& model() const { return model_; }

  std::map<std::string, std::vector<T>> values, gradients;

 private:
  const T* value(const std::string& name) { return values.at(name).data(); }
  T* grad(const std::string& name) { return gradients.at(name).data(); }
  zero::GradTarget<T> target(const std::string& name) { return {grad(name), 1}; }

  BlockValues<T> block_values(int layer) {
    const std::string unit = block_unit(layer) + ".";
    const auto pair = [&](const char* name) {
      return std::pair{value(unit + name + ".weight"), value(unit + name + ".bias")};
    };
    const auto norm = [&](const char* name) {
      return NormValues<T>{pair(name).first, pair(name).second};
    };
    const auto linear = [&](const char* name) {
      return LinearValues<T>{pair(name).first, pair(name).second};
    };
    return {norm("ln_1"),          norm("ln_2"),       linear("attn.c_attn"),
            linear("attn.c_proj"), linear("mlp.c_fc"), linear("mlp.c_proj")};
  }

  BlockGradients<T> block_gradients(int layer) {
    const std::string unit = block_unit(layer) + ".";
    const auto norm = [&](const char* name) {
      return NormGradients<T>{grad(unit + name + ".weight"), grad(unit + name + ".bias")};
    };
    const auto linear = [&](const char* name) {
      return LinearGradients<T>{target(unit + name + ".weight"), grad(unit + name + ".bias")};
    };
    return {norm("ln_1"),          norm("ln_2"),       linear("attn.c_attn"),
            linear("attn.c_proj"), linear("mlp.c_fc"), linear("mlp.c_proj")};
  }

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
