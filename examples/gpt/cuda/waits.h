// Waits of a rank's thread for its GPU, none of them longer than the engine's:
// zero_core.time_limit_seconds. A GPU that hangs would also keep every call that frees memory, so
// that nothing is freed once a wait has ended at its limit.
#pragma once

#include <cuda_runtime_api.h>

namespace gpt::cuda {

class Waits {
 public:
  // For what begins now; a GPU that was only slow counts as working again.
  void set_limit(int rank, double seconds);
  // Whether a wait has ended at its limit.
  bool stalled() const { return stalled_; }

  // Return once the event, or all that the stream was given, is reached; throw StalledError, which
  // says for what.
  void await(cudaEvent_t event, const char* what);
  void await(cudaStream_t stream, const char* what);
  // For destructors, before memory is freed that the stream may use. While an exception is thrown,
  // which may be about a GPU that hangs, it does not wait: what the stream still uses is left to
  // the end of the process.
  void finish(cudaStream_t stream, const char* what) noexcept;

 private:
  template <class Reached>
  void until(const Reached& reached, const char* what);

  int rank_ = 0;
  double seconds_ = 600;
  int exceptions_ = 0;
  bool stalled_ = false;
};

// The calling thread's.
Waits& waits();

}  // namespace gpt::cuda
