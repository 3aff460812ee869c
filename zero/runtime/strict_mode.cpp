#include "zero/runtime/strict_mode.h"

#include <cstdlib>
#include <string>

#include "zero/base/error.h"

namespace zero::detail {

bool strict_mode() {
  const char* text = std::getenv("ZERO_STRICT");
  if (text == nullptr || *text == '\0') return ZERO_STRICT_DEFAULT != 0;
  const std::string value = text;
  if (value != "0" && value != "1")
    throw ConfigError("ZERO_STRICT is \"" + value + "\"; expected 0 or 1");
  return value == "1";
}

}  // namespace zero::detail
