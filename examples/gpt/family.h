// A model family: what tells GPT-2 from Llama beside the arithmetic of their blocks. Each has one
// object, in the file of its name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "examples/gpt/config_reader.h"
#include "examples/gpt/dims.h"
#include "examples/gpt/model_config.h"
#include "zero/zero.h"

namespace gpt {

// Where a model's parts find their parameters: units, and names within them or global ones.
struct PartNames {
  std::string embedding_unit, tokens;
  std::string positions;    // empty: there is no table of them
  std::string block_units;  // and the number of the layer
  std::string head_unit, norm_weight;
  std::string norm_bias;   // empty: none
  std::string classifier;  // global or the head's own

  std::string block_unit(std::int64_t layer) const { return block_units + std::to_string(layer); }
};

class Family {
 public:
  virtual std::vector<ModelConfig> presets() const = 0;
  // Hugging Face's config.json, in and out. Problems are the reader's.
  virtual void read(ConfigReader& reader, ModelConfig& config) const = 0;
  virtual nlohmann::json write(const ModelConfig& config) const = 0;

  virtual std::int64_t parameters(const ModelConfig& config) const = 0;
  // Those of tables that are only looked up in: they take part in no product.
  virtual std::int64_t looked_up(const ModelConfig& config) const = 0;
  virtual PartNames names(const ModelConfig& config) const = 0;
  // Units in forward order, by the names of Hugging Face's model: checkpoints need no translation.
  virtual void declare(const ModelConfig& config, zero::ModelSpec& model) const = 0;
  // All but those of the micro batch.
  virtual Dims dims(const ModelConfig& config) const = 0;

 protected:
  ~Family() = default;
};

const Family& gpt2_family();
const Family& llama_family();
const Family& family_of(const ModelConfig& config);

// For declare().
inline constexpr zero::ParamOptions no_decay() {
  zero::ParamOptions options;
  options.decay = false;
  return options;
}

}  // namespace gpt
