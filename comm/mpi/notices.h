// Carries the first cause of a failure to the ranks of other nodes, which poll for it in their
// waits.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/control_page.h"
#include "comm/mpi/native.h"
#include "comm/mpi/requests.h"
#include "comm/world.h"

namespace zero::comm {

class Notices {
 public:
  // comm is for notices alone. any_thread: MPI may be called from every thread.
  Notices(UniqueComm comm, const Topology& topology, bool any_thread);

  // To all ranks of other nodes; does not wait. Once.
  void send(const Cause& cause) noexcept;
  // Until the notices are out, or a moment has passed.
  void flush() noexcept;
  // Publishes a notice that has come on this node's page. Cheap where there are no other nodes.
  void poll(ControlPage& page);
  void forget() { comm_.forget(); }

 private:
  bool may_call_mpi() const { return any_thread_ || std::this_thread::get_id() == owner_; }

  UniqueComm comm_;
  std::vector<int> remote_ranks_;
  bool any_thread_;
  std::thread::id owner_;
  std::mutex mutex_;
  Cause outgoing_;
  Requests requests_;
};

}  // namespace zero::comm
