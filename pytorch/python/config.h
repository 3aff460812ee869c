// zerocore._native.Config: the resolved config, which Python asks for what it acts on itself, and
// which an optimizer of the program's changes before the engine is made.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace zero::pytorch {

void declare_config(pybind11::module_& module);

}  // namespace zero::pytorch
