// Waits of a rank's thread for its GPU, none longer than the engine's limit,
// zero_core.time_limit_seconds. If a GPU hangs, calls that free memory would hang too, so nothing
// is freed after a wait has ended at its limit.
#pragma once

#include <cuda_runtime_api.h>

namespace gpt::cuda {

class Waits {
 public:
  // Sets the limit of the following waits; a GPU that was only slow counts as working again.
  void set_limit(int rank, double seconds);
  // Returns whether a wait has ended at its limit.
  bool stalled() const { return stalled_; }

  // Return when the event, or all work of the stream, is done; throw StalledError, naming `what`,
  // at the limit.
  void await(cudaEvent_t event, const char* what);
  void await(cudaStream_t stream, const char* what);
  // Called by destructors before memory is freed that the stream may use. Does not wait while an
  // exception is thrown, since the GPU may hang: memory that the stream still uses is left to the
  // end of the process.
  void finish(cudaStream_t stream, const char* what) noexcept;

 private:
  template <class Reached>
  void until(const Reached& reached, const char* what);

  int rank_ = 0;
  double seconds_ = 600;
  int exceptions_ = 0;
  bool stalled_ = false;
};

// Returns the calling thread's.
Waits& waits();

}  // namespace gpt::cuda
