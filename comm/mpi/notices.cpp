#include "comm/mpi/notices.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "comm/hierarchical/requests.h"

namespace zero::comm {
namespace {

// Short enough that MPI sends a notice at once, even if the receiver does not poll.
constexpr std::size_t most_text = 2047;

}  // namespace

MpiNotices::MpiNotices(UniqueComm comm, const Topology& topology, bool any_thread)
    : comm_(std::move(comm)),
      any_thread_(any_thread),
      owner_(std::this_thread::get_id()),
      requests_(comm_.get()) {
  for (int r = 0; r < topology.size; ++r)
    if (topology.node_of[r] != topology.node) remote_ranks_.push_back(r);
}

void MpiNotices::send(const Cause& cause) noexcept {
  if (remote_ranks_.empty() || !may_call_mpi() || !mpi_is_up()) return;
  try {
    const std::lock_guard lock(mutex_);
    outgoing_ = cause;
    const std::size_t text = std::min(std::strlen(outgoing_.message), most_text);
    for (const int rank : remote_ranks_)
      requests_.send(&outgoing_, offsetof(Cause, message) + text, rank, tag_notice);
  } catch (const std::exception&) {
    // The launcher ends the ranks of other nodes.
  }
}

void MpiNotices::flush() noexcept {
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

void MpiNotices::poll(ControlPage& page) {
  if (remote_ranks_.empty() || !may_call_mpi()) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || page.failed()) return;
  int found = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  check_mpi(
      MPI_Improbe(MPI_ANY_SOURCE, tag_notice, comm_.get(), &found, &message, MPI_STATUS_IGNORE),
      "MPI_Improbe");
  if (found == 0) return;
  Cause notice;
  check_mpi(MPI_Mrecv(&notice, sizeof notice, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
  // A rank of the failure's node prints the cause.
  page.claim_print();
  page.publish(notice);
}

}  // namespace zero::comm
