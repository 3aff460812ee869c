// Makes an NCCL communicator for ranks that are connected by a host transport.
#pragma once

#include <functional>
#include <memory>

#include "comm/nccl/guard.h"
#include "comm/world.h"

namespace zero::comm::nccl {

// Whether this process has opened NCCL before the environment was set for share_gpu.
bool is_nccl_open();

struct ConnectOptions {
  std::function<std::shared_ptr<Api>()> load = load_nccl;  // called once the environment is set
  std::function<bool()> is_open = is_nccl_open;
  std::function<void()> check_peers = [] {};  // as in GuardOptions
  std::chrono::milliseconds start_limit{120'000};
  bool share_gpu = false;  // several ranks on a GPU: correct, and slow
  bool abort_job = true;
};

// Collective. The check-in over the host names ranks that do not come. Two ranks on the same GPU
// are a TopologyError, unless share_gpu is set, which also sets NCCL's environment.
std::unique_ptr<Communicator> connect(Communicator& host, Device& device,
                                      const ConnectOptions& options);

// Overwrites NCCL's environment for share_gpu: every process counts as a host, connected by
// sockets.
void set_shared_gpu_environment(int rank);

}  // namespace zero::comm::nccl
