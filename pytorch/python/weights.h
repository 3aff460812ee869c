// Files of weights, read whole in one process, for Python.
#pragma once

#include <torch/csrc/utils/pybind.h>

void declare_weights(pybind11::module_& module);
