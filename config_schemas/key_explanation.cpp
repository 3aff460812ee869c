#include "config_schemas/key_explanation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config_schemas/differences.h"
#include "config_schemas/document.h"
#include "config_schemas/values.h"
#include "zero/base/error.h"

namespace zero::config_schemas {
namespace {

constexpr std::string_view own_section = "zero_core";

std::string type_name(const Key& key) {
  switch (key.type) {
    case Type::section:
    case Type::block:
      return "object";
    case Type::boolean:
      return "boolean";
    case Type::integer:
      return "integer";
    case Type::number:
      return "number";
    case Type::choice:
    case Type::text:
      return "string";
    case Type::pair:
    case Type::list:
      return "array";
    case Type::group_size:
      return "integer or string";
    default:
      return "any";
  }
}

const Difference* difference_of(const Key& key) {
  const auto found = std::ranges::find_if(differences(), [&](const Difference& row) {
    return std::ranges::find(row.keys, key.path) != row.keys.end();
  });
  return found == differences().end() ? nullptr : &*found;
}

std::string here(const Key& key) {
  const Difference* difference = difference_of(key);
  switch (key.status) {
    case Status::no_effect:
      return "no effect: " + std::string(key.reason);
    case Status::refused:
      return "refused where it asks for something: " + std::string(key.reason);
    case Status::replaced:
      return "read as " + std::string(key.reason);
    default:
      return difference == nullptr ? "acts" : "acts: " + std::string(difference->here);
  }
}

std::string in_deepspeed(const Key& key) {
  if (key.path.starts_with(own_section)) return "has no such key";
  if (const Difference* difference = difference_of(key))
    return std::string(difference->deepspeed) + "; otherwise here, as " +
           std::string(difference->why);
  if (key.gone) return "0.19 refuses its mere presence";
  if (key.meaning == says_nothing) return "does not read it";
  return key.status == Status::honoured ? "means the same" : std::string(key.meaning);
}

std::string meaning_of(const Key& key) {
  std::string text(key.meaning == says_nothing ? "none" : key.meaning);
  if (key.belongs_to.empty()) return text;
  text += "; of";
  for (const auto owner : key.belongs_to)
    text += (owner == key.belongs_to.front() ? " " : ", ") + std::string(owner);
  return text;
}

}  // namespace

std::vector<const Key*> keys_named(const std::string& text) {
  if (const Key* key = find_key(text)) return {key};
  std::vector<const Key*> found;
  for (const Key& key : keys())
    if (last_name(key.path) == text || key.alias == text) found.push_back(&key);
  if (!found.empty()) return found;
  const Guess guess = text.find('.') == std::string::npos ? guess_name(text) : guess_key(text);
  throw ConfigError(printable(text) + ": no known key, and no file; " +
                    (guess.path.empty() ? "docs/config.md lists those that are known"
                                        : "nearest known key: " + guess.path));
}

std::vector<std::pair<std::string, std::string>> facts_of(const Key& key) {
  std::vector<std::pair<std::string, std::string>> facts{{"meaning", meaning_of(key)},
                                                         {"type", type_name(key)}};
  if (!key.alias.empty()) facts.emplace_back("also written", key.alias);
  if (key.type != Type::section) {
    facts.emplace_back("allowed", allowed_values(key));
    facts.emplace_back("default", show_default(key));
    facts.emplace_back("here", here(key));
    facts.emplace_back("DeepSpeed", in_deepspeed(key));
    return facts;
  }
  for (const Key& inside : keys())
    if (section_of(inside.path) == key.path)
      facts.emplace_back(last_name(inside.path), meaning_of(inside));
  return facts;
}

std::string to_json(const std::vector<const Key*>& keys) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const Key* key : keys)
    for (const auto& [name, text] : facts_of(*key)) json[std::string(key->path)][name] = text;
  return json.dump(2, ' ', true) + "\n";
}

}  // namespace zero::config_schemas
