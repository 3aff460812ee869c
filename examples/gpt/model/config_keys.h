// The keys of a family's config.json as a table: name in the file, member of ModelConfig, default,
// refused values.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "examples/gpt/model/config_reader.h"
#include "examples/gpt/model/model_config.h"

namespace gpt {

struct ConfigKey {
  enum class Kind {
    dimension,           // an integer of 1 to `largest`; required
    optional_dimension,  // 0 if missing or null
    number,              // positive
    flag,
    supported,  // only these values, if present
    fixed,      // the same; written with the first
    kept,       // copied unchanged from file to file
    ignored,
  };
  using Json = nlohmann::json;

  Kind kind;
  std::string name;
  std::variant<std::monostate, std::int64_t ModelConfig::*, double ModelConfig::*,
               bool ModelConfig::*>
      member = {};
  Json fallback = {};  // for numbers and flags
  std::int64_t largest = ConfigReader::largest_dimension;
  std::vector<Json> values = {};
  std::string other_name = {};  // read if the name is missing, and written next to it
};

// Constructors of rows of the table.
inline ConfigKey dimension(const std::string& name, std::int64_t ModelConfig::*member,
                           std::int64_t largest = ConfigReader::largest_dimension) {
  return {ConfigKey::Kind::dimension, name, member, {}, largest};
}
inline ConfigKey optional_dimension(const std::string& name, std::int64_t ModelConfig::*member) {
  return {ConfigKey::Kind::optional_dimension, name, member};
}
inline ConfigKey number(const std::string& name, double ModelConfig::*member, double fallback) {
  return {ConfigKey::Kind::number, name, member, fallback};
}
inline ConfigKey flag(const std::string& name, bool ModelConfig::*member, bool fallback) {
  return {ConfigKey::Kind::flag, name, member, fallback};
}
inline ConfigKey supported(const std::string& name, std::vector<nlohmann::json> values) {
  return {.kind = ConfigKey::Kind::supported, .name = name, .values = std::move(values)};
}
inline ConfigKey fixed(const std::string& name, std::vector<nlohmann::json> values) {
  return {.kind = ConfigKey::Kind::fixed, .name = name, .values = std::move(values)};
}
inline ConfigKey kept(const std::string& name) {
  return {.kind = ConfigKey::Kind::kept, .name = name};
}

inline ConfigKey ignored(const std::string& name) {
  return {.kind = ConfigKey::Kind::ignored, .name = name};
}

// Problems are reported through the reader.
void read_keys(const std::vector<ConfigKey>& keys, ConfigReader& reader, ModelConfig& config);
nlohmann::json write_keys(const std::vector<ConfigKey>& keys, const ModelConfig& config);

}  // namespace gpt
