#include "tools/zero/explanation.h"

#include <algorithm>

#include "tools/zero/differences.h"
#include "tools/zero/json_value.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::tool {

using namespace config_schemas;

namespace {

using Json = nlohmann::ordered_json;

Json batch_of(const Batch& batch) {
  return {{"train_batch_size", batch.global},
          {"train_micro_batch_size_per_gpu", batch.micro},
          {"gradient_accumulation_steps", batch.accumulation}};
}

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
    case Type::integers:
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
      return "refused if its value enables it: " + std::string(key.reason);
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
  if (key.removed) return "0.19 refuses its mere presence";
  if (key.meaning == never_read) return "does not read it";
  return key.status == Status::honored ? "means the same" : std::string(key.meaning);
}

std::string meaning_of(const Key& key) {
  std::string text(key.meaning == never_read ? "none" : key.meaning);
  if (key.belongs_to.empty()) return text;
  return text + "; of " + owners_of(key);
}

}  // namespace

std::string effect_of(const Entry& entry) {
  const Key& key = *entry.key;
  if (key.status == Status::no_effect) return "no effect here: " + std::string(key.reason);
  if (key.status == Status::refused) return "asks for nothing";
  return std::string(key.meaning);
}

void fill_batch(Loaded& loaded, const Batch& batch) {
  const std::pair<std::string_view, std::int64_t> values[] = {
      {"train_batch_size", batch.global},
      {"train_micro_batch_size_per_gpu", batch.micro},
      {"gradient_accumulation_steps", batch.accumulation}};
  for (Entry& entry : loaded.entries)
    for (const auto& [path, value] : values) {
      if (entry.path != path) continue;
      entry.value = std::to_string(value);
      if (entry.source == Source::fallback) entry.source = Source::derived;
    }
}

std::string to_json(const Explanation& explanation) {
  Json json = {{"values", Json::object()},
               {"notices", explanation.loaded.config.notices},
               {"imported", Json::object()}};
  for (const Entry& entry : explanation.loaded.entries)
    json["values"][entry.path] = {{"value", json_value(*entry.key, entry.value)},
                                  {"source", name_of(entry.source)},
                                  {"effect", effect_of(entry)}};
  for (const auto& [key, effect] : explanation.loaded.imported) json["imported"][key] = effect;
  if (explanation.batch) json["batch"] = batch_of(*explanation.batch);
  for (const auto& [name, text] : explanation.plan) json["plan"][name] = text;
  for (const detail::Exchange& exchange : explanation.exchanges)
    json["exchanges"].push_back({{"when", exchange.when},
                                 {"instruction", exchange.op},
                                 {"times", exchange.times},
                                 {"routes", exchange.routes}});
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::vector<const Key*> keys_named(const std::string& text) {
  if (const Key* key = find_key(text)) return {key};
  std::vector<const Key*> found;
  for (const Key& key : keys())
    if (last_name(key.path) == text || key.alias == text) found.push_back(&key);
  if (!found.empty()) return found;
  if (const std::size_t equals = text.find('='); equals != std::string::npos)
    throw ConfigError(printable(text) + ": expected a key alone, such as " +
                      printable(text.substr(0, equals)));
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
  Json json = Json::object();
  for (const Key* key : keys)
    for (const auto& [name, text] : facts_of(*key)) json[key->path][name] = text;
  return json.dump(2, ' ', true) + "\n";
}

}  // namespace zero::tool
