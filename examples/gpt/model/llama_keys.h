// Keys of config.json that Llama and later families share, and derived values.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "examples/gpt/model/config_keys.h"

namespace gpt {

// `more`: additional rows of a family.
std::vector<ConfigKey> llama_keys(double epsilon, const std::vector<ConfigKey>& more);
// Checks heads and rotary embedding.
void check_llama(ConfigReader& reader, ModelConfig& config);
std::vector<std::string> keys_of_check_llama();
void complete_llama(const ModelConfig& config, nlohmann::json& json);

}  // namespace gpt
