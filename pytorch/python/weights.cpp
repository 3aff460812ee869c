#include "pytorch/python/weights.h"

#include <ATen/ATen.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "pytorch/managed_parameter.h"
#include "zero/saved_weights.h"
#include "zero/zero.h"

namespace py = pybind11;

namespace {

using namespace zero;
using Unlocked = py::call_guard<py::gil_scoped_release>;

std::vector<std::string> tags_in(const std::string& directory) {
  std::vector<std::string> tags;
  for (const SavedCheckpoint& checkpoint : list_checkpoints(directory))
    if (checkpoint.sequence > 0) tags.push_back(checkpoint.tag);
  return tags;
}

at::ScalarType type_of(const std::string& dtype) {
  for (int type = 0; type < static_cast<int>(at::ScalarType::NumOptions); ++type)
    if (pytorch::file_dtype(static_cast<at::ScalarType>(type)) == dtype)
      return static_cast<at::ScalarType>(type);
  throw LoadError("a buffer is stored as " + dtype + ", which torch does not have");
}

// Returns the tensors of these entries, in order.
std::vector<at::Tensor> tensors_of(const SavedWeights& saved,
                                   const std::vector<std::size_t>& entries) {
  std::vector<at::Tensor> tensors;
  std::vector<SavedWeights::Wanted> wanted;
  for (const std::size_t entry : entries) {
    const SavedWeights::Entry& about = saved.entries().at(entry);
    at::Tensor& tensor = tensors.emplace_back(at::empty(about.shape, type_of(about.dtype)));
    wanted.push_back(
        {entry, {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()}});
  }
  saved.read(wanted);
  return tensors;
}

// Returns those of the names that a model's files have; files that cannot be read have none.
std::vector<std::string> names_in(const std::string& path, const std::vector<std::string>& names) {
  std::vector<std::string> there;
  try {
    const SavedModel model(path);
    std::ranges::copy_if(names, std::back_inserter(there),
                         [&](const std::string& name) { return model.has(name); });
  } catch (const LoadError&) {
    return {};  // the engine reports this, on all ranks
  }
  return there;
}

}  // namespace

void declare_weights(py::module_& module) {
  module.def("list_checkpoints", &tags_in, Unlocked());
  module.def("names_in", &names_in, py::arg("path"), py::arg("names"), Unlocked());
  module.def(
      "are_equal",
      [](const std::string& path, const std::string& name, const std::string& other) {
        return SavedModel(path).are_equal(name, other);
      },
      py::arg("path"), py::arg("name"), py::arg("other"), Unlocked());
  py::class_<SavedWeights::Entry>(module, "SavedEntry")
      .def_readonly("names", &SavedWeights::Entry::names)
      .def_readonly("is_trained", &SavedWeights::Entry::is_trained)
      .def_readonly("is_buffer", &SavedWeights::Entry::is_buffer);
  py::class_<SavedWeights>(module, "SavedWeights")
      .def(py::init<std::string, std::string>(), py::arg("directory"), py::arg("tag"), Unlocked())
      .def_property_readonly("notices", &SavedWeights::notices)
      .def_property_readonly("entries", &SavedWeights::entries)
      .def("read", &tensors_of, py::arg("entries"), Unlocked())
      .def("program_state",
           [](const SavedWeights& saved) { return py::bytes(saved.program_state()); });
}
