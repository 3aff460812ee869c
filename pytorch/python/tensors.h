// Tensors without own memory: those of an engine, and of parameters that zero.Init has made.
#pragma once

#include <torch/csrc/utils/pybind.h>

void declare_tensors(pybind11::module_& module);
