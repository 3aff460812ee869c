// The shape of a model, from a preset or from a Hugging Face config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/gpt/model/rope_config.h"

namespace gpt {

struct ModelConfig {
  std::string name;
  std::int64_t layers = 0, heads = 0, channels = 0, vocabulary = 0, context = 0;
  double norm_epsilon = 1e-5;
  double initial_deviation = 0.02;
  std::string model_type = "gpt2";  // the family, by Hugging Face's name

  // Used by Llama and later families. Query heads share key heads in even groups. 0: as many as
  // heads, and channels / heads.
  std::int64_t key_heads = 0, head_channels = 0;
  std::int64_t inner = 0;  // of SwiGLU
  bool attention_bias = false, mlp_bias = false;
  bool tied = false;  // the embedding is the classifier
  RopeConfig rope = RopeConfig();
  // Parts of config.json that the trainer does not use, copied into saved models.
  std::string kept_keys = "{}";
  std::vector<std::string> notices = {};  // about keys of the file that have no effect

  std::int64_t parameters() const;
};

// Loads a preset (tiny, mini, gpt2, ..., llama-tiny, ...) or the config.json of a GPT-2, Llama,
// Qwen2 or OLMo 2. The small presets have no own vocabulary and take `data_vocabulary`: 256 for
// bytes. Throws ConfigError with every problem of the file.
ModelConfig load_model_config(const std::string& name_or_file, std::int64_t data_vocabulary);

// Returns the presets' names, separated by commas.
std::string preset_names();

// Writes config.json into the directory, in transformers' format. Throws SaveError.
void save_model_config(const ModelConfig& config, const std::string& directory);

}  // namespace gpt
