// The planner, as zerocore.plan() calls it.
#pragma once

#include <torch/csrc/utils/pybind.h>

void declare_planner(pybind11::module_& module);
