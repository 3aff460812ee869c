#include "examples/gpt/cuda/linked_cudart.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
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

// cudaStreamGetCaptureInfo() has different parameters in each version of CUDA. The frontend calls
// it for the graph that a stream is captured into, and no stream of this program is captured.
cudaError_t capture_status(cudaStream_t stream, cudaStreamCaptureStatus* status,
                           cudaGraph_t* graph) {
  if (graph != nullptr) *graph = nullptr;
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t capture_info_of_cuda_12(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                    unsigned long long*, cudaGraph_t* graph,
                                    const cudaGraphNode_t**, std::size_t*) {
  return capture_status(stream, status, graph);
}
cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                         cudaGraph_t* graph, const cudaGraphNode_t**, const void**, std::size_t*) {
  return capture_status(stream, status, graph);
}

// A function that this file does not list, for a later release of the frontend. A second copy of
// the runtime accepts the streams and pointers of the linked runtime.
void* find_elsewhere(const char* name) {
  static void* const runtime =
      ::dlopen(("libcudart.so." + std::to_string(CUDART_VERSION / 1000)).c_str(), RTLD_NOW);
  return runtime == nullptr ? nullptr : ::dlsym(runtime, name);
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
      Linked{"cudaStreamGetCaptureInfo", address(capture_info)},
      Linked{"cudaStreamGetCaptureInfo_v2", address(capture_info_of_cuda_12)},
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
  if (library != &linked_runtime) return ::dlsym(library, name);
  void* const linked = find_linked(name);
  return linked != nullptr ? linked : find_elsewhere(name);
}

}  // namespace cudnn_frontend::detail
