#include "tools/options/settings.h"

#include <algorithm>

#include "config_schemas/keys.h"
#include "config_schemas/overrides.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero {

Text parse_settings(const std::vector<std::string>& settings) {
  Text values;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0)
      throw ConfigError("--set " + printable(setting) +
                        ": expected path=value, such as zero_optimization.stage=3");
    values[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return values;
}

std::string settings_hint(std::string_view option) {
  if (!option.starts_with("--")) return "";
  std::string name(option.substr(2));
  std::ranges::replace(name, '-', '_');
  const config_schemas::Key* found = config_schemas::find_key(name + ".enabled");
  if (found == nullptr) found = config_schemas::find_key(name);
  for (const config_schemas::Key& key : config_schemas::keys())
    if (found == nullptr && config_schemas::last_name(key.path) == name) found = &key;
  if (found == nullptr) return "";
  return "; did you mean --set " + std::string(found->path) + "=VALUE?";
}

bool gives(const Text& settings, std::string_view path) {
  return config_schemas::gives(settings, path);
}

}  // namespace zero
