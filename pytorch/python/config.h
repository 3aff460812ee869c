// zerocore._native.Config: the resolved config. Python reads the keys implemented in Python, and
// replaces the optimizer by the program's before the engine is made.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "zero/config.h"

namespace zero::pytorch {

void declare_config(pybind11::module_& module);

// Returns the config without notices, since the package prints these on Python's output.
Config silent(Config config);

}  // namespace zero::pytorch
