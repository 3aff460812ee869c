// Keys of config.json that Llama and the families after it share, and what follows from them.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "examples/gpt/config_keys.h"

namespace gpt {

// With more rows that a family has of its own.
std::vector<ConfigKey> llama_keys(double epsilon, const std::vector<ConfigKey>& more);
// Heads, and rotary embedding.
void check_llama(ConfigReader& reader, ModelConfig& config);
std::vector<std::string> keys_of_check_llama();
void complete_llama(const ModelConfig& config, nlohmann::json& json);

}  // namespace gpt
