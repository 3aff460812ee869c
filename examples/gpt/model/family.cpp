#include "examples/gpt/model/family.h"

#include <algorithm>

namespace gpt {

const std::vector<const Family*>& families() {
  static const std::vector<const Family*> all = {&gpt2_family(), &llama_family(), &qwen2_family(),
                                                 &olmo2_family()};
  return all;
}

const Family& family_of(const ModelConfig& config) {
  const auto found = std::find_if(families().begin(), families().end(), [&](const Family* family) {
    return family->model_type == config.model_type;
  });
  if (found == families().end())
    throw zero::Error("there is no model family '" + config.model_type + "'");
  return **found;
}

std::vector<std::string> names_of_keys(const Family& family) {
  std::vector<std::string> names = family.more_keys;
  for (const ConfigKey& key : family.keys) {
    names.push_back(key.name);
    if (!key.other_name.empty()) names.push_back(key.other_name);
  }
  return names;
}

nlohmann::json json_of(const ModelConfig& config) {
  const Family& family = family_of(config);
  nlohmann::json json = write_keys(family.keys, config);
  json["architectures"] = {family.class_name};
  json["model_type"] = family.model_type;
  family.complete(config, json);
  return json;
}

}  // namespace gpt
