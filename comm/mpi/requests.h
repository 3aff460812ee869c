// Pending messages of one call: chunks in flight, waited for with a time limit. What is still
// pending when the call fails is cancelled.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "comm/mpi/native.h"

namespace zero::comm {

// Of the messages of a communicator.
inline constexpr int tag_header = 1, tag_data = 2, tag_notice = 3;

class Requests {
 public:
  explicit Requests(MPI_Comm comm) : comm_(comm) {}
  ~Requests() { cancel(); }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  // At most 2^31 - 1 bytes each; empty messages are not sent.
  void send(const void* data, std::int64_t bytes, int to, int tag);
  void receive(void* data, std::int64_t bytes, int from, int tag = tag_data);
  // True when all are complete.
  bool test();
  // The ranks whose messages have come since the last call; empty() when that was all.
  std::vector<int> test_received();
  bool empty() const { return requests_.empty(); }
  // Ranks that we still wait for.
  std::set<int> waiting_for() const;

 private:
  struct Message {
    int peer;
    bool receives;
  };

  void cancel() noexcept;

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // of the requests
};

}  // namespace zero::comm
