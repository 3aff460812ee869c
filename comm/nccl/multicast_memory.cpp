#include "comm/nccl/multicast_memory.h"

#include <cuda.h>

#include <string>

#include "zero/base/cuda/driver.h"
#include "zero/base/error.h"

namespace zero::comm::nccl {

namespace {

constexpr unsigned oldest_driver = 12010;  // with multicast

template <class Function>
void find(const char* name, Function& function) {
  function = reinterpret_cast<Function>(zero::cuda::find_in_driver(name, oldest_driver));
}

}  // namespace

bool supports_multicast(int device) {
  decltype(&cuDeviceGetAttribute) get_attribute = nullptr;
  find("cuDeviceGetAttribute", get_attribute);
  int supported = 0;
  return get_attribute != nullptr &&
         get_attribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device) ==
             CUDA_SUCCESS &&
         supported != 0;
}

std::int64_t bytes_of_allocation(const void* memory) {
  decltype(&cuMemGetAddressRange) address_range = nullptr;
  find("cuMemGetAddressRange", address_range);
  if (address_range == nullptr) throw Error("the driver has no cuMemGetAddressRange");
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  const CUresult result = address_range(&begin, &bytes, reinterpret_cast<CUdeviceptr>(memory));
  if (result != CUDA_SUCCESS)
    throw Error("cuMemGetAddressRange: error " + std::to_string(result) + " of the driver");
  return static_cast<std::int64_t>(bytes);
}

}  // namespace zero::comm::nccl
