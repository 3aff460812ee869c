#include "comm/control_plane.h"

#include <algorithm>

#include "comm/call.h"
#include "zero/base/error.h"

namespace zero::comm {

std::string cause_text(const Cause& cause) {
  if (cause.died) return cause.message;
  return "stopped because rank " + std::to_string(cause.rank) + " failed: " + cause.message;
}

ControlPlane::ControlPlane(std::shared_ptr<void> memory, ControlPage* page, int local_rank,
                           std::vector<int> local_ranks)
    : memory_(std::move(memory)),
      page_(page),
      local_rank_(local_rank),
      local_ranks_(std::move(local_ranks)) {}

void ControlPlane::check() {
  if (const auto cause = page_->cause()) throw PeerFailed(cause_text(*cause), cause->exit_code);
}

void ControlPlane::check_all() {
  if (remote_poll_) remote_poll_();
  check();
}

void ControlPlane::enter(Operation operation, std::int64_t sequence, std::string_view subject) {
  ControlSlot& own = slot();
  own.operation.store(static_cast<std::uint32_t>(operation), std::memory_order_relaxed);
  own.sequence.store(sequence, std::memory_order_relaxed);
  own.subject.store(subject);
  own.in_call.store(1, std::memory_order_relaxed);
}

std::string ControlPlane::last_call(int world_rank) const {
  const auto found = std::find(local_ranks_.begin(), local_ranks_.end(), world_rank);
  if (found == local_ranks_.end()) return "it runs on another node";
  const ControlSlot& peer = page_->slot(static_cast<int>(found - local_ranks_.begin()));
  if (peer.state.load(std::memory_order_relaxed) == RankState::left) return "it has left the job";
  const std::int64_t sequence = peer.sequence.load(std::memory_order_relaxed);
  const std::string subject = peer.subject.load();
  if (sequence == 0 && subject.empty()) return "it has made no call yet";
  const auto operation = static_cast<Operation>(peer.operation.load(std::memory_order_relaxed));
  return (peer.in_call.load(std::memory_order_relaxed) != 0 ? "it is in " : "its last call was ") +
         describe_call(operation, subject, sequence);
}

}  // namespace zero::comm
