// The report of compare_stages() for Python: tools/report over what zerocore's engines have
// measured.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace zero::pytorch {

void declare_comparison(pybind11::module_& module);

}  // namespace zero::pytorch
