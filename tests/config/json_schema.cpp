#include <cmath>
#include <map>

#include "tests/config/generate.h"
#include "tools/zero/json_value.h"

namespace zero::tests {
namespace {

using namespace config_schemas;
using namespace tool;

using Json = nlohmann::ordered_json;

std::string description(const Key& key) {
  std::string text(key.meaning == never_read ? "" : key.meaning);
  if (text.empty()) text = "not read";
  if (!key.belongs_to.empty()) {
    text += " (" + owners_of(key) + ")";
  }
  if (key.status == Status::no_effect) text += ". No effect here: " + std::string(key.reason);
  if (key.status == Status::refused)
    text += ". Refused if its value enables it: " + std::string(key.reason);
  if (key.status == Status::replaced) text += ". Write " + std::string(key.reason);
  return text;
}

void add_range(Json& value, const ValueRange& range) {
  if (std::isfinite(range.low)) value[range.above_low ? "exclusiveMinimum" : "minimum"] = range.low;
  if (std::isfinite(range.high))
    value[range.below_high ? "exclusiveMaximum" : "maximum"] = range.high;
}

// Returns the forms of a value, to be combined by anyOf.
std::vector<Json> forms(const Key& key) {
  switch (key.type) {
    case Type::boolean:
      return {{{"type", "boolean"}}};
    case Type::integer:
    case Type::number: {
      Json value = {{"type", key.type == Type::integer ? "integer" : "number"}};
      add_range(value, key.range);
      return {value};
    }
    case Type::group_size: {
      Json value = {{"type", "integer"}};
      add_range(value, key.range);
      return {{{"const", "node"}}, value};
    }
    case Type::group_sizes: {
      Json value = {{"type", "integer"}};
      add_range(value, key.range);
      return {
          {{"const", "node"}},
          value,
          {{"type", "array"}, {"items", value}, {"minItems", 1}, {"maxItems", most_reduce_groups}}};
    }
    case Type::integers: {
      Json element = {{"type", "integer"}};
      add_range(element, key.range);
      return {{{"type", "array"}, {"items", element}, {"minItems", 1}}};
    }
    case Type::pair: {
      Json element = {{"type", "number"}};
      add_range(element, key.range);
      return {{{"type", "array"}, {"items", element}, {"minItems", 2}, {"maxItems", 2}}};
    }
    case Type::choice: {
      Json names = Json::array();
      for (const auto choice : key.choices) {
        names.push_back(choice);
        // A version such as 0.1 may be written without quotes.
        if (Json number = Json::parse(choice, nullptr, false); number.is_number())
          names.push_back(std::move(number));
      }
      if (!key.any_case) return {{{"enum", names}}};
      // Any string is allowed, since case does not matter; editors complete the listed names.
      return {{{"enum", names}}, {{"type", "string"}}};
    }
    case Type::text:
      return {{{"type", "string"}}};
    case Type::text_or_integers:
      return {{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "integer"}}}}};
    case Type::list:
      return {{{"type", "array"}}};
    case Type::block:
      return {{{"type", "object"}}};
    default:
      return {};
  }
}

bool may_be_auto(const Key& key) {
  if (key.type == Type::section || key.type == Type::block) return key.auto_is_absent;
  return converts_values(key.path) || takes_auto(key) ||
         key.path.starts_with("optimizer.params.") || key.path.starts_with("scheduler.params.") ||
         section_of(key.path).empty();
}

Json value_schema(const Key& key) {
  std::vector<Json> any = forms(key);
  if (!any.empty() && may_be_auto(key)) any.push_back({{"const", "auto"}});
  if (!any.empty() && key.nullable) any.push_back({{"type", "null"}});
  if (key.infinity_is_null) any.push_back({{"const", "inf"}});
  if (key.list_of_one && any.size() > 0)
    any.push_back({{"type", "array"}, {"items", any.front()}, {"minItems", 1}, {"maxItems", 1}});
  Json schema = Json::object();
  schema["description"] = description(key);
  if (key.status == Status::replaced) schema["deprecated"] = true;
  if (any.size() == 1) schema.update(any.front());
  if (any.size() > 1) schema["anyOf"] = any;
  if (Json initial = json_value(key, show_default(key)); !initial.is_null())
    schema["default"] = initial;
  return schema;
}

Json section_schema(std::string_view path);

Json property(const Key& key) {
  if (key.type != Type::section) return value_schema(key);
  Json schema = section_schema(key.path);
  Json described = {{"description", description(key)}};
  std::vector<Json> others;
  if (key.nullable) others.push_back({{"type", "null"}});
  if (key.auto_is_absent) others.push_back({{"const", "auto"}});
  if (key.path == "zero_optimization") others.push_back({{"type", "boolean"}});
  if (others.empty()) {
    described.update(schema);
  } else {
    others.insert(others.begin(), schema);
    described["anyOf"] = others;
  }
  return described;
}

Json section_schema(std::string_view path) {
  Json properties = Json::object();
  Json patterns = {{"^_", Json::object()}};
  bool any_name = false;
  for (const Key& key : keys()) {
    if (section_of(key.path) != path) continue;
    if (last_name(key.path) == "*") {
      any_name = true;
      patterns = {{"^[A-Za-z0-9_-]{1,64}$", property(key)}};
      continue;
    }
    properties[std::string(last_name(key.path))] = property(key);
    if (!key.alias.empty()) properties[std::string(key.alias)] = property(key);
  }
  Json schema = {{"type", "object"}};
  if (!any_name) schema["properties"] = properties;
  schema["patternProperties"] = patterns;
  schema["additionalProperties"] = false;
  return schema;
}

}  // namespace

std::string json_schema() {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "DeepSpeed configuration, as ZeroCore reads it"},
                 {"description", "Made from the key table in config_schemas; do not edit."}};
  schema.update(section_schema(""));
  schema["properties"]["$schema"] = {{"description", "for editors; not read"}, {"type", "string"}};
  return schema.dump(1, ' ', true) + "\n";
}

}  // namespace zero::tests
