#include "pytorch/tensor_device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace zero::pytorch {

at::Device tensor_device(const Runtime& runtime) {
  if (runtime.gpu() < 0) return at::kCPU;
  return {at::kCUDA, static_cast<at::DeviceIndex>(runtime.gpu())};
}

Stream torch_stream(at::Device device) {
  if (device.is_cpu()) return {};
  void* handle = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
  // CUDA's handle of the default stream. Torch uses null, but to the engine null means no stream.
  static char* const legacy_default_stream = reinterpret_cast<char*>(1);
  return {handle != nullptr ? handle : legacy_default_stream};
}

at::Tensor tensor_at(const void* memory, at::IntArrayRef sizes, at::ScalarType type,
                     at::Device device) {
  return at::for_blob(const_cast<void*>(memory), sizes)
      .options(at::TensorOptions(type).device(device))
      .target_device(device)
      .make_tensor();
}

void copy_bytes(const at::Tensor& from, const at::Tensor& to) {
  const auto bytes = [](const at::Tensor& tensor) {
    const auto count = static_cast<std::int64_t>(tensor.nbytes());
    return tensor_at(tensor.data_ptr(), {count}, at::kByte, tensor.device());
  };
  if (from.numel() > 0) bytes(to).copy_(bytes(from));
}

at::Tensor copy_of(const at::Tensor& contiguous) {
  at::Tensor copy = at::empty(contiguous.sizes(), contiguous.options().requires_grad(false));
  copy_bytes(contiguous, copy);
  return copy;
}

}  // namespace zero::pytorch
