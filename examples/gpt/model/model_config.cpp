#include "examples/gpt/model/model_config.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "examples/gpt/model/config_reader.h"
#include "examples/gpt/model/family.h"
#include "examples/gpt/model/foreign_keys.h"
#include "tools/options/json_text.h"
#include "tools/options/result_file.h"
#include "zero/base/input_file.h"
#include "zero/base/spelling.h"
#include "zero/zero.h"

namespace gpt {
namespace {

using Json = nlohmann::json;

std::vector<ModelConfig> presets() {
  std::vector<ModelConfig> all;
  for (const Family* family : families())
    all.insert(all.end(), family->presets.begin(), family->presets.end());
  return all;
}

const Family& family_named(const Json& model_type, const std::string& file) {
  std::string names;
  for (std::size_t i = 0; i < families().size(); ++i) {
    if (model_type == families()[i]->model_type) return *families()[i];
    const bool last = i + 1 == families().size();
    names += (i == 0 ? "" : last ? " and " : ", ") + Json(families()[i]->model_type).dump();
  }
  throw zero::ConfigError(file + ": model_type is " + model_type.dump() +
                          "; this trainer supports " + names);
}

ModelConfig from_json(const Json& json, const std::string& file) {
  if (!json.is_object()) throw zero::ConfigError(file + " must hold a JSON object");
  // A file without a model_type is a GPT-2, since there was no other family when such files were
  // written.
  Json type = json.value("model_type", Json());
  if (type.is_null()) type = "gpt2";
  const Family& family = family_named(type, file);
  ModelConfig config;
  config.name = file;
  config.model_type = family.model_type;
  std::string problems;
  ConfigReader reader(json, problems);
  read_keys(family.keys, reader, config);
  family.check(reader, config);
  check_foreign_keys(names_of_keys(family), reader, config);
  if (!problems.empty())
    throw zero::ConfigError(file + " is no model that this trainer can train:" + problems);
  return config;
}

ModelConfig read_file(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    std::vector<std::string> names;
    for (const ModelConfig& preset : presets()) names.push_back(preset.name);
    throw zero::ConfigError("--model " + file + ": neither a preset (" + preset_names() +
                            ") nor a file" + zero::hint_for(file, names));
  }
  const std::string text =
      zero::read_input_file({file, "--model " + file, 16, "the config.json in a model's folder"});
  return from_json(zero::parse_json(text, "--model " + file + " "), file);
}

}  // namespace

ModelConfig load_model_config(const std::string& name_or_file, std::int64_t data_vocabulary) {
  for (ModelConfig& preset : presets()) {
    if (preset.name != name_or_file) continue;
    if (preset.vocabulary == 0) preset.vocabulary = data_vocabulary;
    return std::move(preset);
  }
  return read_file(name_or_file);
}

std::string preset_names() {
  std::string names;
  for (const ModelConfig& preset : presets()) names += (names.empty() ? "" : ", ") + preset.name;
  return names;
}

void save_model_config(const ModelConfig& config, const std::string& directory) {
  const std::string path = (std::filesystem::path(directory) / "config.json").string();
  zero::write_result(path, path, json_of(config).dump(2) + "\n");
}

}  // namespace gpt
