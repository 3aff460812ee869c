#include "tools/options/settings.h"

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

bool gives(const Text& settings, std::string_view path) {
  return config_schemas::gives(settings, path);
}

}  // namespace zero
