// Notices by MPI.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/control_page.h"
#include "comm/mpi/native.h"
#include "comm/mpi/requests.h"
#include "comm/notices.h"
#include "comm/world.h"

namespace zero::comm {

class MpiNotices final : public Notices {
 public:
  // `comm` must carry only notices. any_thread: MPI may be called from every thread.
  MpiNotices(UniqueComm comm, const Topology& topology, bool any_thread);

  void send(const Cause& cause) noexcept override;
  void flush() noexcept override;
  void poll(ControlPage& page) override;
  void forsake() noexcept override { comm_.forget(); }

 private:
  bool may_call_mpi() const { return any_thread_ || std::this_thread::get_id() == owner_; }

  UniqueComm comm_;
  std::vector<int> remote_ranks_;
  bool any_thread_;
  std::thread::id owner_;
  std::mutex mutex_;
  Cause outgoing_;
  MpiPending requests_;
};

}  // namespace zero::comm
