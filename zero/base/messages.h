// Messages between the ranks of a group, which may be on several nodes. No call waits: the caller
// polls for a message, with a limit.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

namespace zero {

// Messages in transit: call send() and receive(), then test_received() until empty(). The
// destructor cancels incomplete messages, so that their memory may be freed.
class Pending {
 public:
  virtual ~Pending() = default;

  // At most 2^31 - 1 bytes each, and not 0. Between two ranks, messages are received in the order
  // of sending, whatever the tags.
  virtual void send(const void* data, std::int64_t bytes, int to, int tag) = 0;
  virtual void receive(void* data, std::int64_t bytes, int from, int tag) = 0;
  // Returns the ranks whose messages have arrived since the last call; empty() is true once all
  // have.
  virtual std::vector<int> test_received() = 0;
  virtual bool empty() const = 0;
  // Returns ranks whose message is missing; if there are none, those that have not received ours.
  virtual std::set<int> waiting_for() const = 0;
};

// The messages of a group, separate from those of any other group.
class Messages {
 public:
  virtual ~Messages() = default;

  // The name of the transport, such as "mpi".
  virtual std::string_view name() const = 0;
  virtual std::unique_ptr<Pending> begin() = 0;
  // Advances messages that move only during a call.
  virtual void poll() {}
  // Returns messages among the ranks with the same color (not negative), of which this rank is
  // `rank` among `size`; null if `size` is 1. Collective.
  virtual std::unique_ptr<Messages> split(int color, int rank, int size) = 0;
  // Called if the job is broken: ending must not wait for the peers.
  virtual void forsake() noexcept = 0;
};

}  // namespace zero
