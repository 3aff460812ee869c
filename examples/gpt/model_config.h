// The shape of a GPT-2, from a preset or from a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <string>

namespace gpt {

struct ModelConfig {
  std::string name;
  std::int64_t layers = 0, heads = 0, channels = 0, vocabulary = 0, context = 0;
  double layer_norm_epsilon = 1e-5;

  std::int64_t head_channels() const { return channels / heads; }
  std::int64_t parameters() const;
};

// A preset (tiny, mini, gpt2, gpt2-medium, gpt2-large, gpt2-xl) or the path of a config.json. The
// small presets have no vocabulary of their own and take `data_vocabulary`: 256 for bytes. Throws
// ConfigError with every problem of the file.
ModelConfig load_model_config(const std::string& name_or_file, std::int64_t data_vocabulary);

// Writes config.json into the directory, as transformers reads it. Throws SaveError.
void save_model_config(const ModelConfig& config, const std::string& directory);

}  // namespace gpt
