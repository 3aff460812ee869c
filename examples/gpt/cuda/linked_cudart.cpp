#include "examples/gpt/cuda/linked_cudart.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace {

// The address serves as the handle of the linked runtime.
char linked_runtime = 0;

struct Linked {
  std::string_view name;
  void* function;
};

template <class Function>
void* address(Function* function) {
  return reinterpret_cast<void*>(function);
}

// CUDA 12 uses the second name of the properties.
void* find_linked(std::string_view name) {
  static const std::array linked = {
      Linked{"cudaDeviceGetAttribute", address(cudaDeviceGetAttribute)},
      Linked{"cudaDeviceSynchronize", address(cudaDeviceSynchronize)},
      Linked{"cudaEventCreate", address(cudaEventCreate)},
      Linked{"cudaEventDestroy", address(cudaEventDestroy)},
      Linked{"cudaEventElapsedTime", address(cudaEventElapsedTime)},
      Linked{"cudaEventRecord", address(cudaEventRecord)},
      Linked{"cudaEventSynchronize", address(cudaEventSynchronize)},
      Linked{"cudaFree", address(cudaFree)},
      Linked{"cudaGetDevice", address(cudaGetDevice)},
      Linked{"cudaGetDeviceProperties", address(cudaGetDeviceProperties)},
      Linked{"cudaGetDeviceProperties_v2", address(cudaGetDeviceProperties)},
      Linked{"cudaGetDriverEntryPointByVersion", address(cudaGetDriverEntryPointByVersion)},
      Linked{"cudaGetErrorString", address(cudaGetErrorString)},
      Linked{"cudaGetLastError", address(cudaGetLastError)},
      Linked{"cudaMalloc", address(cudaMalloc)},
      Linked{"cudaMemcpyAsync", address(cudaMemcpyAsync)},
      Linked{"cudaMemsetAsync", address(cudaMemsetAsync)},
      Linked{"cudaPointerGetAttributes", address(cudaPointerGetAttributes)},
      Linked{"cudaRuntimeGetVersion", address(cudaRuntimeGetVersion)},
      Linked{"cudaStreamCreate", address(cudaStreamCreate)},
      Linked{"cudaStreamDestroy", address(cudaStreamDestroy)},
      Linked{"cudaStreamIsCapturing", address(cudaStreamIsCapturing)},
      Linked{"cudaStreamSynchronize", address(cudaStreamSynchronize)},
  };
  const auto found =
      std::find_if(linked.begin(), linked.end(), [&](const Linked& l) { return l.name == name; });
  return found == linked.end() ? nullptr : found->function;
}

}  // namespace

namespace cudnn_frontend::detail {

void* dlopen(const char* file, int mode) {
  const std::string_view name = file;
  if (name == "libcudart.so." + std::to_string(CUDART_VERSION / 1000)) return &linked_runtime;
  return name.starts_with("libcudart.so.") ? nullptr : ::dlopen(file, mode);
}

void* dlsym(void* library, const char* name) {
  return library == &linked_runtime ? find_linked(name) : ::dlsym(library, name);
}

}  // namespace cudnn_frontend::detail
