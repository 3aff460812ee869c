#include "examples/gpt/model/config_keys.h"

namespace gpt {
namespace {

using KeyKind = ConfigKey::Kind;

template <class Value>
Value ModelConfig::*member_of(const ConfigKey& key) {
  return std::get<Value ModelConfig::*>(key.member);
}

void read_key(const ConfigKey& key, ConfigReader& reader, ModelConfig& config) {
  const bool other = !key.other_name.empty() && !reader.has(key.name) && reader.has(key.other_name);
  const std::string& name = other ? key.other_name : key.name;
  switch (key.kind) {
    case KeyKind::dimension:
      config.*member_of<std::int64_t>(key) = reader.dimension(name, key.largest);
      return;
    case KeyKind::optional_dimension:
      if (reader.has(name))
        config.*member_of<std::int64_t>(key) = reader.dimension(name, key.largest);
      return;
    case KeyKind::number:
      config.*member_of<double>(key) = reader.number(name, key.fallback.get<double>());
      return;
    case KeyKind::flag:
      config.*member_of<bool>(key) = reader.flag(name, key.fallback.get<bool>());
      return;
    case KeyKind::supported:
    case KeyKind::fixed:
      return reader.require(name, key.values);
    case KeyKind::kept:  // copied all at once
    case KeyKind::ignored:
      return;
  }
}

}  // namespace

void read_keys(const std::vector<ConfigKey>& keys, ConfigReader& reader, ModelConfig& config) {
  std::vector<std::string> kept;
  for (const ConfigKey& key : keys) {
    read_key(key, reader, config);
    if (key.kind == KeyKind::kept) kept.push_back(key.name);
  }
  config.kept_keys = reader.copy(kept).dump();
}

nlohmann::json write_keys(const std::vector<ConfigKey>& keys, const ModelConfig& config) {
  auto json = nlohmann::json::parse(config.kept_keys);
  for (const ConfigKey& key : keys) {
    if (key.kind == KeyKind::fixed) json[key.name] = key.values.front();
    if (const auto* member = std::get_if<std::int64_t ModelConfig::*>(&key.member))
      json[key.name] = config.**member;
    if (const auto* member = std::get_if<double ModelConfig::*>(&key.member))
      json[key.name] = config.**member;
    if (const auto* member = std::get_if<bool ModelConfig::*>(&key.member))
      json[key.name] = config.**member;
    if (!key.other_name.empty()) json[key.other_name] = json[key.name];
  }
  return json;
}

}  // namespace gpt
