// The planner, as called by zerocore.plan().
#pragma once

#include <torch/csrc/utils/pybind.h>

void declare_planner(pybind11::module_& module);
