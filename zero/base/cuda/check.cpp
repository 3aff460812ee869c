#include "zero/base/cuda/check.h"

#include <mutex>
#include <string>

#include "zero/base/error.h"

namespace zero::cuda {

namespace {

std::mutex first_cause_mutex;
std::string first_cause;

std::string text_of(cudaError_t error, const char* call) {
  return std::string(call) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
}

// Whether the context is still usable after the error.
bool is_passing(cudaError_t error) {
  return error == cudaErrorMemoryAllocation || error == cudaErrorInvalidValue ||
         error == cudaErrorNotReady || error == cudaErrorNoDevice ||
         error == cudaErrorInsufficientDriver || error == cudaErrorInvalidDevice ||
         error == cudaErrorHostMemoryAlreadyRegistered || error == cudaErrorInvalidResourceHandle ||
         error == cudaErrorCudartUnloading;
}

// Returns the first cause, which may be this error.
std::string kept(cudaError_t error, const char* call) {
  const std::lock_guard lock(first_cause_mutex);
  if (is_passing(error) && first_cause.empty()) return text_of(error, call);
  if (first_cause.empty()) first_cause = text_of(error, call);
  return first_cause;
}

}  // namespace

void note(cudaError_t error, const char* call) noexcept {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  try {
    kept(error, call);
  } catch (const std::exception&) {
    // Without memory for the text, the next call reports the fault itself.
  }
}

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  // Otherwise the next launch would report the error once more.
  static_cast<void>(cudaGetLastError());
  const std::string text = kept(error, call);
  if (error == cudaErrorMemoryAllocation) throw MemoryError(text);
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
      error == cudaErrorInvalidDevice || error == cudaErrorSystemNotReady)
    throw TopologyError(text);
  throw Error(text);
}

}  // namespace zero::cuda
