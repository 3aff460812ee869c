// A model family: its keys of config.json and its architecture. Each family is an object in a file
// of the same name; family.cpp lists all.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/gpt/model/architecture.h"
#include "examples/gpt/model/config_keys.h"
#include "examples/gpt/model/model_config.h"

namespace gpt {

struct Family {
  std::string model_type, class_name;  // Hugging Face's names
  std::vector<ModelConfig> presets;
  std::vector<ConfigKey> keys;
  std::vector<std::string> more_keys;  // keys that `check` reads
  // Rules that no row of the table can express, for reading and for writing the keys.
  void (*check)(ConfigReader& reader, ModelConfig& config);
  void (*complete)(const ModelConfig& config, nlohmann::json& json);
  Architecture (*architecture)(const ModelConfig& config);
};

const Family& gpt2_family();
const Family& llama_family();
const Family& qwen2_family();
const Family& olmo2_family();

const std::vector<const Family*>& families();
const Family& family_of(const ModelConfig& config);
// Returns the keys of config.json that the family reads.
std::vector<std::string> names_of_keys(const Family& family);

// Writes a config.json of transformers.
nlohmann::json json_of(const ModelConfig& config);

}  // namespace gpt
