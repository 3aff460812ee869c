// Models in stages for Python: _native.Pipeline, and the units that it is made of.
#pragma once

#include <pybind11/pybind11.h>

namespace zero::pytorch {

void declare_pipelines(pybind11::module_& module);

}  // namespace zero::pytorch
