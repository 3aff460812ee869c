// Conversion of a value, as the table shows it, to JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "config_schemas/values.h"

namespace zero::tool {

// Typed if the table has the type; an unset value is null.
inline nlohmann::ordered_json json_value(const config_schemas::Key& key, const std::string& shown) {
  using namespace config_schemas;
  if (shown == not_set || shown == "null") return nullptr;
  if (key.type == Type::text || key.type == Type::choice) return shown;
  auto value = nlohmann::ordered_json::parse(shown, nullptr, false);
  return value.is_discarded() ? nlohmann::ordered_json(shown) : value;
}

}  // namespace zero::tool
