// zerocore._native.Config: the resolved config. Python reads the keys that it implements itself,
// and replaces the optimizer by the program's before the engine is made.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "zero/config.h"

namespace zero::pytorch {

void declare_config(pybind11::module_& module);

// Returns the config without its notices, which the package prints itself on Python's output.
Config silent(Config config);

}  // namespace zero::pytorch
