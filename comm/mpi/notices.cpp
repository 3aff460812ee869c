#include "comm/mpi/notices.h"

#include <chrono>
#include <cstring>

namespace zero::comm {

Notices::Notices(UniqueComm comm, const Topology& topology, bool any_thread)
    : comm_(std::move(comm)),
      any_thread_(any_thread),
      owner_(std::this_thread::get_id()),
      requests_(comm_.get()) {
  for (int r = 0; r < topology.size; ++r)
    if (topology.node_of[r] != topology.node) remote_ranks_.push_back(r);
}

void Notices::send(const Cause& cause) noexcept {
  if (remote_ranks_.empty() || !may_call_mpi() || !mpi_is_up()) return;
  try {
    const std::lock_guard lock(mutex_);
    outgoing_.rank = cause.rank;
    outgoing_.exit_code = cause.exit_code;
    outgoing_.died = cause.died ? 1 : 0;
    std::strncpy(outgoing_.text, cause.message.c_str(), sizeof outgoing_.text - 1);
    for (const int rank : remote_ranks_)
      requests_.send(&outgoing_, sizeof outgoing_, rank, tag_notice);
  } catch (const std::exception&) {
    // The ranks of other nodes are ended by the launcher.
  }
}

void Notices::flush() noexcept {
  using Clock = std::chrono::steady_clock;
  if (!may_call_mpi() || !mpi_is_up()) return;
  try {
    const std::lock_guard lock(mutex_);
    const auto deadline = Clock::now() + std::chrono::milliseconds(500);
    while (!requests_.test() && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } catch (const std::exception&) {
  }
}

void Notices::poll(ControlPage& page) {
  if (remote_ranks_.empty() || !may_call_mpi()) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || page.failed()) return;
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  check_mpi(
      MPI_Improbe(MPI_ANY_SOURCE, tag_notice, comm_.get(), &found, &message, MPI_STATUS_IGNORE),
      "MPI_Improbe");
  if (found == 0) return;
  Message notice;
  check_mpi(MPI_Mrecv(&notice, sizeof notice, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
  notice.text[sizeof notice.text - 1] = '\0';
  // The node where it happened prints it.
  page.claim_print();
  page.publish({notice.rank, notice.exit_code, notice.died != 0, notice.text});
}

}  // namespace zero::comm
