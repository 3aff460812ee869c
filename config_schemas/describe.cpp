#include <map>

#include "config_schemas/values.h"

namespace zero {
namespace {

using namespace config_schemas;

// A parameter of another optimizer or schedule than the chosen one says nothing.
bool applies(const Key& key, const Config& config) {
  if (key.belongs_to.empty()) return true;
  const std::string& type =
      key.path.starts_with("optimizer.") ? config.optimizer.type : config.scheduler.type;
  return belongs_to(key, type);
}

}  // namespace

std::string describe(const Config& config) {
  Config copy = config;  // rows reach members through a Config that they may change
  std::map<std::string, std::string> lines;
  for (const Key& key : keys()) {
    if (key.target == nullptr || !applies(key, config)) continue;
    const auto star = key.path.find('*');
    if (star == std::string_view::npos) {
      lines[std::string(key.path)] = show_value(key, "", copy);
      continue;
    }
    for (const auto& [name, group] : config.zero_core.param_groups) {
      std::string path(key.path);
      lines[path.replace(star, 1, printable(name))] = show_value(key, name, copy);
    }
  }
  std::string text;
  for (const auto& [path, value] : lines) text += path + " = " + value + "\n";
  return text;
}

}  // namespace zero
