#include "pytorch/python/tensors.h"

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pytorch/managed_parameter.h"
#include "pytorch/storage_access.h"

namespace {

using namespace zero::pytorch;

c10::StorageImpl& storage_of(const at::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

// Whether accesses would throw: a tensor with elements, without memory.
bool is_at_rest(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.numel() > 0 && !tensor.is_meta() &&
         storage_of(tensor)._mutable_data_ptr_no_checks().get() == nullptr;
}

// Without memory, accesses throw an error with this text.
void free_memory(const at::Tensor& tensor, std::optional<std::string> message) {
  c10::StorageImpl& storage = storage_of(tensor);
  allow_access(storage);
  storage.set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  if (message) storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(message));
}

}  // namespace

void declare_tensors(pybind11::module_& module) {
  namespace py = pybind11;
  module.def("is_at_rest", &is_at_rest, py::arg("tensor"));
  // The name of the dtype in safetensors files, or None.
  module.def("file_dtype", &file_dtype, py::arg("dtype"));
  // Makes a tensor with a shape and without memory, for a module with weights from a file.
  module.def("without_memory", [](const std::vector<std::int64_t>& shape, at::ScalarType dtype) {
    return at::from_blob(nullptr, shape, at::TensorOptions(dtype));
  });
  // Moves another tensor's memory, or none, into a zero.Init parameter's storage. Tensors and views
  // stay valid.
  module.def("free_memory", &free_memory);
  module.def("give_memory", &give_memory);
}
