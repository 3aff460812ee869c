// Messages between the ranks of a group, which may be on several nodes. No call waits: who needs a
// message tests for it, with a limit of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

namespace zero {

// Messages on their way. The end cancels what has not come or gone by then, so that their memory
// may go.
class Pending {
 public:
  virtual ~Pending() = default;

  // At most 2^31 - 1 bytes each, and not 0. Between two ranks, messages are received in the order
  // in which they are sent, whatever their tags.
  virtual void send(const void* data, std::int64_t bytes, int to, int tag) = 0;
  virtual void receive(void* data, std::int64_t bytes, int from, int tag) = 0;
  // The ranks whose messages have come since the last call; empty() when that was all.
  virtual std::vector<int> test_received() = 0;
  virtual bool empty() const = 0;
  // Ranks that owe us a message; if none does, those that do not take ours.
  virtual std::set<int> waiting_for() const = 0;
};

// The messages of one group, apart from those of all others.
class Messages {
 public:
  virtual ~Messages() = default;

  // "mpi": what carries them.
  virtual std::string_view name() const = 0;
  virtual std::unique_ptr<Pending> begin() = 0;
  // Moves on what moves only while somebody calls.
  virtual void poll() {}
  // Collective: those of the ranks that give the same color, of which this one is `rank` among
  // `size`; null if it is alone. Colors are not negative.
  virtual std::unique_ptr<Messages> split(int color, int rank, int size) = 0;
  // In a broken job, whose peers the end must not wait for.
  virtual void forsake() noexcept = 0;
};

}  // namespace zero
