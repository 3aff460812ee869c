// Prints the tables of docs/config.md from the key table: one per section, in its order.
#include <cstdio>
#include <string>

#include "config_schemas/keys.h"
#include "config_schemas/values.h"

using namespace zero::config_schemas;

namespace {

std::string names(const Key& key) {
  std::string text = "`" + std::string(key.path) + "`";
  if (!key.alias.empty()) text += " or `" + std::string(key.alias) + "`";
  return text;
}

std::string meaning(const Key& key) {
  std::string text(key.meaning), types;
  for (const std::string_view type : key.belongs_to)
    types += (types.empty() ? "" : ", ") + std::string(type);
  if (!types.empty()) text += " (" + types + ")";
  if (key.status != Status::honoured) text += "; **not honoured**: " + std::string(key.reason);
  return text;
}

// The first name of the path: one table for all keys below it.
std::string_view table_of(const Key& key) {
  const auto dot = key.path.find('.');
  if (dot == std::string_view::npos && key.type != Type::section) return "";
  return key.path.substr(0, dot);
}

}  // namespace

int main() {
  zero::Config defaults;
  std::string_view open = "none";
  for (const Key& key : keys()) {
    if (table_of(key) != open) {
      open = table_of(key);
      if (open.empty())
        std::printf("\n## Top level\n\n");
      else
        std::printf("\n## `%s`\n\n%s\n\n", std::string(open).c_str(),
                    std::string(key.meaning).c_str());
      std::printf("| key | value | default | meaning |\n|---|---|---|---|\n");
    }
    if (key.type == Type::section) continue;
    const std::string value = show_value(key, "NAME", defaults);
    std::printf("| %s | %s | %s | %s |\n", names(key).c_str(), allowed_values(key).c_str(),
                value.c_str(), meaning(key).c_str());
  }
}
