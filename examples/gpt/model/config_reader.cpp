#include "examples/gpt/model/config_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace gpt {

bool ConfigReader::has(const std::string& key) const {
  const auto at = json_.find(key);
  return at != json_.end() && !at->is_null();
}

std::int64_t ConfigReader::dimension(const std::string& key, std::int64_t largest) {
  if (!has(key)) return problem(key + " is missing"), 1;
  const auto at = json_.find(key);
  if (!at->is_number_integer()) return problem(key + " must be an integer"), 1;
  const auto value = at->get<std::int64_t>();
  if (value < 1 || value > largest)
    return problem(key + " is " + at->dump() + ", outside 1 to " + std::to_string(largest)), 1;
  return value;
}

double ConfigReader::number(const std::string& key, double fallback) {
  if (!has(key)) return fallback;
  const auto at = json_.find(key);
  if (at->is_number() && at->get<double>() > 0) return at->get<double>();
  problem(key + " must be a positive number");
  return fallback;
}

double ConfigReader::number(const std::string& key) {
  if (!has(key)) problem(key + " is missing");
  return number(key, 1);
}

bool ConfigReader::flag(const std::string& key, bool fallback) {
  if (!has(key)) return fallback;
  const auto at = json_.find(key);
  if (at->is_boolean()) return at->get<bool>();
  problem(key + " must be true or false");
  return fallback;
}

std::string ConfigReader::text(const std::string& key, const std::string& fallback) {
  if (!has(key)) return fallback;
  const auto at = json_.find(key);
  if (at->is_string()) return at->get<std::string>();
  problem(key + " must be a text");
  return fallback;
}

std::optional<ConfigReader> ConfigReader::object(const std::string& key) {
  if (!has(key)) return std::nullopt;
  const Json& value = json_.at(key);
  if (value.is_object()) return ConfigReader(value, problems_, prefix_ + key + ".");
  problem(key + " must be an object or null");
  return std::nullopt;
}

nlohmann::json ConfigReader::copy(const std::vector<std::string>& keys) const {
  Json copied = Json::object();
  for (const std::string& key : keys)
    if (json_.contains(key)) copied[key] = json_.at(key);
  return copied;
}

void ConfigReader::require(const std::string& key, const std::vector<Json>& allowed) {
  if (!has(key)) return;
  const auto at = json_.find(key);
  if (std::find(allowed.begin(), allowed.end(), *at) != allowed.end()) return;
  std::string choice = allowed.empty() ? "null" : "";
  for (const Json& value : allowed) choice += (choice.empty() ? "" : " or ") + value.dump();
  problem(key + " is " + at->dump() + "; this trainer supports " + choice);
}

void ConfigReader::require_keys(const std::vector<std::string>& known, const std::string& whose) {
  for (const auto& [key, value] : json_.items())
    if (has(key) && std::find(known.begin(), known.end(), key) == known.end())
      problem(key + " is no key of " + whose + " that this trainer knows");
}

std::vector<std::string> ConfigReader::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json_.items())
    if (has(key)) keys.push_back(key);
  return keys;
}

}  // namespace gpt
