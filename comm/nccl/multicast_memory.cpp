#include "comm/nccl/multicast_memory.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "zero/base/cuda/check.h"
#include "zero/base/error.h"

namespace zero::comm::nccl {

namespace {

constexpr unsigned oldest_driver = 12010;  // with multicast

// Null where the driver is older.
template <class Function>
void find(const char* name, Function& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &address, oldest_driver, cudaEnableDefault, &found);
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  const bool usable = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
  function = usable ? reinterpret_cast<Function>(address) : nullptr;
}

void check(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw Error(std::string(call) + ": error " + std::to_string(result) + " of the driver");
}

}  // namespace

std::int64_t multicast_granularity(int device, std::int64_t bytes) {
  decltype(&cuDeviceGetAttribute) get_attribute = nullptr;
  decltype(&cuMemGetAllocationGranularity) allocation_granularity = nullptr;
  decltype(&cuMulticastGetGranularity) granularity_of_multicast = nullptr;
  find("cuDeviceGetAttribute", get_attribute);
  find("cuMemGetAllocationGranularity", allocation_granularity);
  find("cuMulticastGetGranularity", granularity_of_multicast);
  int supported = 0, devices = 0;
  if (get_attribute == nullptr || allocation_granularity == nullptr ||
      granularity_of_multicast == nullptr ||
      get_attribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device) != CUDA_SUCCESS ||
      supported == 0)
    return 0;
  zero::cuda::check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");

  CUmemAllocationProp memory{};
  memory.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  memory.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  memory.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t of_memory = 0, of_multicast = 0;
  check(allocation_granularity(&of_memory, &memory, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "cuMemGetAllocationGranularity");
  CUmulticastObjectProp multicast{};
  multicast.numDevices = static_cast<unsigned>(devices);
  multicast.size = (static_cast<std::size_t>(bytes) + of_memory - 1) / of_memory * of_memory;
  multicast.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  check(granularity_of_multicast(&of_multicast, &multicast, CU_MULTICAST_GRANULARITY_RECOMMENDED),
        "cuMulticastGetGranularity");
  return static_cast<std::int64_t>(std::max(of_memory, of_multicast));
}

std::int64_t bytes_of_allocation(const void* memory) {
  decltype(&cuMemGetAddressRange) address_range = nullptr;
  find("cuMemGetAddressRange", address_range);
  if (address_range == nullptr) throw Error("the driver has no cuMemGetAddressRange");
  CUdeviceptr begin = 0;
  std::size_t bytes = 0;
  check(address_range(&begin, &bytes, reinterpret_cast<CUdeviceptr>(memory)),
        "cuMemGetAddressRange");
  return static_cast<std::int64_t>(bytes);
}

}  // namespace zero::comm::nccl
