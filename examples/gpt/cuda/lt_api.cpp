#include "examples/gpt/cuda/lt_api.h"

#include <dlfcn.h>

#include <string>

#include "zero/base/error.h"

namespace gpt::cuda {
namespace {

// The library's major version must be the headers', because the interface may change between major
// versions.
const std::string library = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);

template <class Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr) throw zero::TopologyError(library + " has no " + name);
}

LtApi load() {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    throw zero::TopologyError(std::string("matrix products on a GPU need cuBLASLt: ") + dlerror() +
                              "; put CUDA's library folder into LD_LIBRARY_PATH");
  LtApi api{};
  find(handle, "cublasLtCreate", api.create);
  find(handle, "cublasLtDestroy", api.destroy);
  find(handle, "cublasLtMatmulDescCreate", api.desc_create);
  find(handle, "cublasLtMatmulDescDestroy", api.desc_destroy);
  find(handle, "cublasLtMatmulDescSetAttribute", api.desc_set);
  find(handle, "cublasLtMatrixLayoutCreate", api.layout_create);
  find(handle, "cublasLtMatrixLayoutDestroy", api.layout_destroy);
  find(handle, "cublasLtMatmulPreferenceCreate", api.preference_create);
  find(handle, "cublasLtMatmulPreferenceDestroy", api.preference_destroy);
  find(handle, "cublasLtMatmulPreferenceSetAttribute", api.preference_set);
  find(handle, "cublasLtMatmulAlgoGetHeuristic", api.heuristic);
  find(handle, "cublasLtMatmul", api.matmul);
  find(handle, "cublasLtGetVersion", api.version);
  return api;
}

}  // namespace

const LtApi& lt_api() {
  static const LtApi api = load();
  return api;
}

}  // namespace gpt::cuda
