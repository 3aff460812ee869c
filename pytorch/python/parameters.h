// Parameters as Python declares them.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pytorch/managed_parameter.h"

namespace zero::pytorch {

// Names as in Python, such as "prefix.weight".
struct PyParameter {
  std::string name;
  std::vector<at::Tensor> tensors;
  at::ScalarType dtype;
  bool converted;  // the dtype differs from the compute dtype
  bool trainable;
  std::string group;
  std::optional<bool> whole;  // ParamOptions::whole
  std::vector<std::string> also_named;
};

ParameterDeclaration declaration_of(PyParameter parameter);

void declare_parameters(pybind11::module_& module);

}  // namespace zero::pytorch
