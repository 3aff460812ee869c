#include "comm/mpi/session.h"

#include <unistd.h>

#include <cstdio>

#include "comm/call.h"
#include "comm/environment.h"
#include "comm/mpi/mpi_world.h"
#include "comm/mpi/native.h"
#include "zero/base/run_marks.h"
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
  mark_start(launched_rank());
  thread_ = start_thread("the time limit of the start", [this, limit] {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return started_; })) return;
    const int code = StalledError("").exit_code();
    mark_code(code);
    std::fprintf(stderr,
                 "zero: on host %s: MPI did not come up on all ranks within %s: rank %d waits for "
                 "the others; look for ranks that did not start, or that are stopped, or raise the "
                 "start limit (zero run --start-limit, ZERO_START_LIMIT)\n",
                 host_name().c_str(), duration_text(limit).c_str(), launched_rank());
    // The launcher ends the others then, whose state says who was missing.
    std::this_thread::sleep_for(time_to_be_read);
    _exit(code);
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
