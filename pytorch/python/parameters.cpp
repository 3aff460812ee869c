#include "pytorch/python/parameters.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace zero::pytorch {

ParameterDeclaration declaration_of(PyParameter parameter) {
  ParamOptions options;
  options.trainable = parameter.trainable;
  options.group = parameter.group;
  options.whole = parameter.whole;
  if (parameter.converted) set_dtype(parameter.name, parameter.dtype, options);
  const bool has_values = parameter.tensors.empty() || parameter.tensors.front().numel() == 0 ||
                          parameter.tensors.front().storage().data() != nullptr;
  return {std::move(parameter.name),
          std::move(parameter.tensors),
          parameter.dtype,
          std::move(options),
          has_values,
          std::move(parameter.also_named)};
}

void declare_parameters(py::module_& module) {
  py::class_<PyParameter>(module, "Parameter")
      .def(py::init<std::string, std::vector<at::Tensor>, at::ScalarType, bool, bool, std::string,
                    std::optional<bool>, std::vector<std::string>>(),
           py::arg("name"), py::arg("tensors"), py::arg("dtype"), py::arg("converted"),
           py::arg("trainable"), py::arg("group"), py::arg("whole"), py::arg("also_named"));
}

}  // namespace zero::pytorch
