// The messages of one call of a communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "zero/base/messages.h"

namespace zero::comm {

inline constexpr int tag_header = 1, tag_data = 2, tag_notice = 3;

// Pending messages of one call: chunks in flight, waited for with a time limit.
class Requests {
 public:
  explicit Requests(Messages& messages) : pending_(messages.begin()) {}

  // Empty messages are not sent.
  void send(const void* data, std::int64_t bytes, int to, int tag) {
    if (bytes > 0) pending_->send(data, bytes, to, tag);
  }
  void receive(void* data, std::int64_t bytes, int from, int tag = tag_data) {
    if (bytes > 0) pending_->receive(data, bytes, from, tag);
  }
  std::vector<int> test_received() { return pending_->test_received(); }
  bool empty() const { return pending_->empty(); }
  std::set<int> waiting_for() const { return pending_->waiting_for(); }

 private:
  std::unique_ptr<Pending> pending_;
};

}  // namespace zero::comm
