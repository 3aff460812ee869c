#include "examples/gpt/cuda/waits.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <thread>

#include "examples/gpt/cuda/check.h"

namespace gpt::cuda {
namespace {

using Clock = std::chrono::steady_clock;

bool is_reached(cudaError_t state, const char* call) {
  if (state == cudaErrorNotReady) return false;
  check(state, call);
  return true;
}

}  // namespace

void Waits::set_limit(int rank, double seconds) {
  rank_ = rank;
  seconds_ = seconds;
  exceptions_ = std::uncaught_exceptions();
  stalled_ = false;
}

template <class Reached>
void Waits::until(const Reached& reached, const char* what) {
  const Clock::time_point start = Clock::now();
  while (!reached()) {
    const Clock::duration waited = Clock::now() - start;
    if (stalled_ || std::chrono::duration<double>(waited).count() > seconds_) {
      stalled_ = true;
      std::ostringstream text;
      text << "rank " << rank_ << ": waited " << seconds_ << " s for the GPU, for " << what
           << "; look at the other ranks' last messages, or raise zero_core.time_limit_seconds if "
              "it is only slow";
      throw zero::StalledError(text.str());
    }
    // Sleeps add at most a twentieth to a wait.
    if (waited < std::chrono::microseconds(50))
      sched_yield();
    else
      std::this_thread::sleep_for(
          std::min<std::chrono::nanoseconds>(waited / 20, std::chrono::microseconds(200)));
  }
}

void Waits::await(cudaEvent_t event, const char* what) {
  until([event] { return is_reached(cudaEventQuery(event), "cudaEventQuery"); }, what);
}

void Waits::await(cudaStream_t stream, const char* what) {
  until([stream] { return is_reached(cudaStreamQuery(stream), "cudaStreamQuery"); }, what);
}

void Waits::finish(cudaStream_t stream, const char* what) noexcept {
  if (stalled_) return;
  try {
    if (std::uncaught_exceptions() > exceptions_)
      stalled_ = !is_reached(cudaStreamQuery(stream), "cudaStreamQuery");
    else
      await(stream, what);
  } catch (const zero::StalledError& error) {
    std::fprintf(stderr, "zero: %s; what it may still use is not freed\n", error.what());
  } catch (const std::exception&) {
    // Ignored, since the call that met the fault first has thrown it; nothing runs on the GPU
    // afterwards.
  }
}

Waits& waits() {
  thread_local Waits own;
  return own;
}

}  // namespace gpt::cuda
