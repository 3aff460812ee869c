// The library's errors as Python's.
#pragma once

#include <pybind11/pybind11.h>

namespace zero::pytorch {

// Registers a Python class for each kind of zero::Error, with its exit code.
void declare_errors(pybind11::module_& module);

}  // namespace zero::pytorch
