#include "comm/mpi/session.h"

#include <unistd.h>

#include <cstdio>

#include "comm/call.h"
#include "comm/environment.h"
#include "comm/mpi/mpi_world.h"
#include "comm/mpi/native.h"
#include "zero/base/thread.h"

namespace zero::comm {

bool mpi_initialized() {
  int begun = 0;
  MPI_Initialized(&begun);
  return begun != 0;
}

MpiSession::MpiSession(int& argc, char**& argv) {
  int provided = MPI_THREAD_SINGLE;
  if (!mpi_initialized()) {
    check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    began_ = true;
  } else {
    MPI_Query_thread(&provided);
  }
  any_thread_ = provided == MPI_THREAD_MULTIPLE;
}

MpiSession::MpiSession() {
  if (!mpi_is_up()) throw UsageError("MPI is not initialized, or finalized already");
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  any_thread_ = provided == MPI_THREAD_MULTIPLE;
}

MpiSession::~MpiSession() {
  if (began_ && !forsaken_ && mpi_is_up()) MPI_Finalize();
}

StartGuard::StartGuard(std::chrono::milliseconds limit) {
  thread_ = start_thread("the time limit of the start", [this, limit] {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return started_; })) return;
    std::fprintf(
        stderr,
        "zero: on host %s: MPI did not come up on all ranks within %s; look for ranks that "
        "did not start, or raise the start limit\n",
        host_name().c_str(), duration_text(limit).c_str());
    _exit(StalledError("").exit_code());
  });
}

StartGuard::~StartGuard() {
  {
    const std::lock_guard lock(mutex_);
    started_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

}  // namespace zero::comm
