// The command line of the examples for LibTorch.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "zero/zero.h"

struct Options {
  std::string config;
  std::int64_t steps = 150;
  std::string save;  // directory for the trained weights; empty: not saved
};

inline Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--deepspeed_config")
      options.config = value;
    else if (name == "--steps")
      options.steps = std::atoll(value.c_str());
    else if (name == "--save")
      options.save = value;
    else
      throw zero::ConfigError("unknown option " + name);
  }
  if (options.config.empty())
    throw zero::ConfigError(std::string("usage: ") + argv[0] +
                            " --deepspeed_config FILE [--steps N] [--save DIRECTORY]");
  return options;
}
