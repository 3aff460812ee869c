#include "comm/mpi/session.h"

#include <unistd.h>

#include "comm/mpi/mpi_bootstrap.h"
#include "comm/mpi/native.h"
#include "zero/base/thread.h"

namespace zero::comm {
namespace {

constexpr std::chrono::milliseconds time_to_be_read{500};

}  // namespace

bool mpi_initialized() {
  int begun = 0;
  MPI_Initialized(&begun);
  return begun != 0;
}

MpiSession::MpiSession(bool finalizes) : finalizes_(finalizes) {
  if (!mpi_is_up()) throw UsageError("MPI is not initialized, or finalized already");
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  any_thread_ = provided == MPI_THREAD_MULTIPLE;
}

MpiSession::~MpiSession() {
  if (finalizes_ && mpi_is_up()) MPI_Finalize();
}

ProcessTimeLimit::ProcessTimeLimit(std::chrono::milliseconds limit,
                                   std::function<void(int exit_code)> last_words) {
  thread_ = start_thread("a time limit of MPI", [this, limit, last_words = std::move(last_words)] {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return in_time_; })) return;
    const int code = StalledError::code;
    last_words(code);
    // The launcher then ends all ranks, and prints which were missing.
    std::this_thread::sleep_for(time_to_be_read);
    _exit(code);
  });
}

ProcessTimeLimit::~ProcessTimeLimit() {
  {
    const std::lock_guard lock(mutex_);
    in_time_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

}  // namespace zero::comm
