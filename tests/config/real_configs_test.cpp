// Config files of other projects, where ZERO_DS_CONFIGS names a directory of them.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "config_schemas/load.h"
#include "zero/base/error.h"

using namespace zero;

TEST_CASE("every real config loads or ends in a ConfigError") {
  const char* directory = std::getenv("ZERO_DS_CONFIGS");
  if (directory == nullptr) {
    MESSAGE("skipped: ZERO_DS_CONFIGS names no directory of config files");
    return;
  }
  int loaded = 0, refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".json") continue;
    const std::string file = entry.path().string();
    CAPTURE(file);
    try {
      const Config config = load_config(file);
      CHECK_FALSE(describe(config).empty());
      ++loaded;
    } catch (const ConfigError& error) {
      CHECK(std::string(error.what()).starts_with(file + ":"));
      ++refused;
    }
  }
  MESSAGE(loaded << " loaded, " << refused << " refused");
  CHECK(loaded + refused > 0);
}
