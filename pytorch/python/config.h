// zerocore._native.Config: the resolved config. Python reads the keys that it implements itself,
// and replaces the optimizer by the program's before the engine is made.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace zero::pytorch {

void declare_config(pybind11::module_& module);

}  // namespace zero::pytorch
