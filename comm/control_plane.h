// Health of the job as one rank sees it: publishes the rank's own failure, reports failures of
// peers, and reads the last calls of the node's ranks. Thread-safe. Shared by a World and all
// communicators.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/control_page.h"

namespace zero::comm {

class ControlPlane {
 public:
  // `memory` keeps the page alive. local_ranks are the world ranks of the page's slots.
  ControlPlane(std::shared_ptr<void> memory, ControlPage* page, int local_rank,
               std::vector<int> local_ranks);

  // Polls other nodes for notices; set once, before the first wait.
  void set_remote_poll(std::function<void()> poll) { remote_poll_ = std::move(poll); }

  int world_rank() const { return local_ranks_[local_rank_]; }
  int local_rank() const { return local_rank_; }
  const std::vector<int>& local_ranks() const { return local_ranks_; }
  ControlPage& page() { return *page_; }
  ControlSlot& slot() { return page_->slot(local_rank_); }

  bool failed() const { return page_->failed(); }
  // Throws PeerFailed with the first cause, if there is one.
  void check();
  // Called in waits: polls notices of other nodes, then calls check().
  void check_all();

  void enter(Operation operation, std::int64_t sequence, std::string_view subject);
  void leave() { slot().in_call.store(0, std::memory_order_relaxed); }
  // "its last call was all_gather of unit h.4 (call 411)"; only for ranks of this node.
  std::string last_call(int world_rank) const;

 private:
  std::shared_ptr<void> memory_;
  ControlPage* page_;
  int local_rank_;
  std::vector<int> local_ranks_;
  std::function<void()> remote_poll_;
};

// Returns the text of a cause for PeerFailed and for the last line of a job.
std::string cause_text(const Cause& cause);

}  // namespace zero::comm
