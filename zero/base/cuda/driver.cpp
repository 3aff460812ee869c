#include "zero/base/cuda/driver.h"

#include <cuda_runtime_api.h>

#include "zero/base/cuda/call_watch.h"

namespace zero::cuda {

void* find_in_driver(const char* name, unsigned version) noexcept {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const InCall inside("cudaGetDriverEntryPointByVersion");
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found);
  // Clear the error, because the next call would report a device fault.
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : nullptr;
}

}  // namespace zero::cuda
