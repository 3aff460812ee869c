#include "config_schemas/explanation.h"

#include "config_schemas/json_value.h"

namespace zero::config_schemas {
namespace {

using Json = nlohmann::ordered_json;

Json batch_of(const Batch& batch) {
  return {{"train_batch_size", batch.global},
          {"train_micro_batch_size_per_gpu", batch.micro},
          {"gradient_accumulation_steps", batch.accumulation}};
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
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace zero::config_schemas
