// A wait for other ranks: spins for a microsecond or two, then yields the core (there may be more
// ranks than cores), then sleeps for a small share of the time waited so far.
#pragma once

#include <chrono>
#include <cstdint>

#include "comm/control_plane.h"

namespace zero::comm {

class Wait {
 public:
  // MPI moves data only while polled, so waits on MPI sleep later.
  enum class Progress { memory, polled };

  Wait(ControlPlane& plane, std::chrono::milliseconds limit, Progress progress = Progress::memory)
      : plane_(plane), limit_(limit), progress_(progress) {}

  // Returns false when the limit has passed. Throws PeerFailed when another rank has failed.
  bool pause() {
    if (++rounds_ > spins) return pause_long();
    relax();
    return true;
  }

 private:
  static constexpr std::uint32_t spins = 64;

  static void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  bool pause_long();

  ControlPlane& plane_;
  std::chrono::milliseconds limit_;
  Progress progress_;
  std::uint32_t rounds_ = 0;
  std::chrono::steady_clock::time_point start_{};
};

}  // namespace zero::comm
