// The report of compare_stages() for Python: tools/report applied to measurements of zerocore's
// engines.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace zero::pytorch {

void declare_comparison(pybind11::module_& module);

}  // namespace zero::pytorch
