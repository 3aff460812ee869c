#include "examples/gpt/model_config.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "examples/gpt/config_reader.h"
#include "examples/gpt/family.h"
#include "zero/zero.h"

namespace gpt {
namespace {

using Json = nlohmann::json;

std::vector<ModelConfig> presets() {
  std::vector<ModelConfig> all = gpt2_family().presets();
  for (ModelConfig& preset : llama_family().presets()) all.push_back(std::move(preset));
  return all;
}

// Files without a model_type were GPT-2's before there was another family.
const Family* family_named(const Json& model_type) {
  if (model_type == "gpt2") return &gpt2_family();
  if (model_type == "llama" || model_type == "qwen2") return &llama_family();
  return nullptr;
}

ModelConfig from_json(const Json& json, const std::string& file) {
  if (!json.is_object()) throw zero::ConfigError(file + " must hold a JSON object");
  const Json model_type = json.value("model_type", Json("gpt2"));
  const Family* family = family_named(model_type);
  if (family == nullptr)
    throw zero::ConfigError(file + ": model_type is " + model_type.dump() +
                            "; this trainer supports \"gpt2\", \"llama\" and \"qwen2\"");
  ModelConfig config;
  config.name = file;
  std::string problems;
  ConfigReader reader(json, problems);
  family->read(reader, config);
  if (!problems.empty())
    throw zero::ConfigError(file + " is no model that this trainer can train:" + problems);
  return config;
}

ModelConfig read_file(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    throw zero::ConfigError("--model " + file + ": neither a preset (" + preset_names() +
                            ") nor a file");
  }
  if (std::filesystem::is_directory(file, error))
    throw zero::ConfigError("--model " + file + " is a directory; give the config.json in it");
  if (!std::filesystem::is_regular_file(file, error))
    throw zero::ConfigError("--model " + file + " is not a regular file");
  std::ifstream in(file);
  if (!in) throw zero::ConfigError("--model " + file + " cannot be read");
  try {
    return from_json(Json::parse(in), file);
  } catch (const Json::exception& e) {
    throw zero::ConfigError("--model " + file + " is not valid JSON: " + e.what());
  }
}

}  // namespace

const Family& family_of(const ModelConfig& config) {
  return config.llama ? llama_family() : gpt2_family();
}

std::int64_t ModelConfig::parameters() const {
  return family_of(*this).parameters(*this);
}

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
  const std::filesystem::path path = std::filesystem::path(directory) / "config.json",
                              temporary = std::filesystem::path(directory) / ".tmp-config.json";
  std::ofstream out(temporary);
  out << family_of(config).write(config).dump(2) << '\n';
  out.close();
  const int file = out ? ::open(temporary.c_str(), O_RDONLY | O_CLOEXEC) : -1;
  const bool written = file >= 0 && ::fsync(file) == 0;
  if (file >= 0) ::close(file);
  std::error_code failed;
  if (written) std::filesystem::rename(temporary, path, failed);
  if (!written || failed) throw zero::SaveError("cannot write " + path.string());
}

}  // namespace gpt
