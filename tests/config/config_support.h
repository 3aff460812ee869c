#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "config_schemas/load.h"
#include "zero/base/error.h"

namespace zero::tests {

inline Config parse(std::string_view text, const Text& overrides = {},
                    const TrainerValues& values = {}) {
  return config_schemas::parse_config(text, "ds.json", overrides, values);
}

// Returns the message of the ConfigError that the text must cause.
inline std::string refusal(std::string_view text, const Text& overrides = {}) {
  try {
    parse(text, overrides);
  } catch (const ConfigError& error) {
    CHECK(error.exit_code() == 10);
    return error.what();
  }
  FAIL("accepted: " << std::string(text));
  return "";
}

// Returns the message of the ConfigError that the batch must cause.
inline std::string refused_batch(const BatchOptions& options, int ranks,
                                 bool rank_independent = false) {
  try {
    resolve_batch(options, ranks, rank_independent);
  } catch (const ConfigError& error) {
    return error.what();
  }
  FAIL("accepted");
  return "";
}

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace zero::tests
