// A job of one rank that needs no MPI; see create_single_world().
#pragma once

#include <atomic>

#include "comm/world.h"

namespace zero::comm {

class SingleWorld final : public World {
 public:
  explicit SingleWorld(const WorldOptions& options);

  const Topology& topology() const override { return topology_; }
  Communicator& communicator() override { return *communicator_; }
  bool communicates_from_any_thread() const override { return true; }
  std::string describe() const override { return "self: 1 rank, without MPI"; }
  bool fail(const std::string& reason, int exit_code) noexcept override;
  void abort(int exit_code) noexcept override;

 private:
  Topology topology_;
  bool abort_job_;
  std::unique_ptr<Communicator> communicator_;
  std::atomic<bool> failed_{false};
};

}  // namespace zero::comm
