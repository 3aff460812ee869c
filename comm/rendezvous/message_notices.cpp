#include "comm/rendezvous/message_notices.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "comm/hierarchical/requests.h"

namespace zero::comm {

MessageNotices::MessageNotices(std::unique_ptr<Messages> messages, const Topology& topology)
    : messages_(std::move(messages)), in_(messages_->begin()), out_(messages_->begin()) {
  for (int r = 0; r < topology.size; ++r)
    if (topology.node_of[r] != topology.node) remote_ranks_.push_back(r);
  incoming_.resize(remote_ranks_.size());
  for (std::size_t i = 0; i < remote_ranks_.size(); ++i)
    in_->receive(&incoming_[i], sizeof(Cause), remote_ranks_[i], tag_notice);
}

void MessageNotices::send(const Cause& cause) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    outgoing_ = cause;
    for (const int rank : remote_ranks_) out_->send(&outgoing_, sizeof(Cause), rank, tag_notice);
  } catch (const std::exception&) {
    // The ranks of other nodes find that messages do not come.
  }
}

void MessageNotices::flush() noexcept {
  using Clock = std::chrono::steady_clock;
  try {
    const std::lock_guard lock(mutex_);
    const auto deadline = Clock::now() + std::chrono::milliseconds(500);
    while (!out_->empty() && Clock::now() < deadline) {
      out_->test_received();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const std::exception&) {
  }
}

void MessageNotices::poll(ControlPage& page) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || page.failed() || in_->empty()) return;
  for (const int rank : in_->test_received()) {
    const auto found = std::find(remote_ranks_.begin(), remote_ranks_.end(), rank);
    // A rank of the failure's node prints the cause.
    page.claim_print();
    page.publish(incoming_[static_cast<std::size_t>(found - remote_ranks_.begin())]);
  }
}

}  // namespace zero::comm
