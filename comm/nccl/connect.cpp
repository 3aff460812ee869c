#include "comm/nccl/connect.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "comm/nccl/nccl_communicator.h"
#include "zero/base/error.h"
#include "zero/base/notice.h"

namespace zero::comm::nccl {

namespace {

// Every rank's GPU, in rank order.
std::vector<std::array<std::int64_t, 2>> gather_identities(Communicator& host, Device& device) {
  std::vector<std::array<std::int64_t, 2>> all(host.size());
  const std::array<std::int64_t, 2> own = device.identity();
  host.set_subject("the check-in before NCCL");
  host.all_gather(own.data(), all.data(), static_cast<std::int64_t>(own.size()), DType::int64);
  return all;
}

void refuse_shared_gpus(const std::vector<std::array<std::int64_t, 2>>& identities) {
  for (std::size_t a = 0; a < identities.size(); ++a)
    for (std::size_t b = a + 1; b < identities.size(); ++b)
      if (identities[a] == identities[b])
        throw TopologyError("ranks " + std::to_string(a) + " and " + std::to_string(b) +
                            " would share one GPU, which NCCL refuses: start at most one rank per "
                            "GPU, or set ZERO_SHARE_GPU=1 (RuntimeOptions::share_gpu) on all "
                            "ranks to test on it, over sockets and slowly");
}

std::string own_host_prefix() {
  return "zero-" + std::to_string(getpid()) + "-";
}

}  // namespace

bool is_nccl_open() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return false;
  dlclose(library);
  const char* const host = std::getenv("NCCL_HOSTID");
  return host == nullptr || !std::string(host).starts_with(own_host_prefix());
}

void set_shared_gpu_environment(int rank) {
  const std::string id = own_host_prefix() + std::to_string(rank);
  const std::pair<const char*, const char*> settings[] = {
      {"NCCL_HOSTID", id.c_str()},
      {"NCCL_NET", "Socket"},
      {"NCCL_SOCKET_IFNAME", "lo"},
      {"NCCL_P2P_DISABLE", "1"},
      {"NCCL_SHM_DISABLE", "1"},
      {"NCCL_NVLS_ENABLE", "0"},
      {"NCCL_MNNVL_ENABLE", "0"},
      {"NCCL_IB_DISABLE", "1"},
      {"NCCL_RAS_ENABLE", "0"},
      {"NCCL_MAX_CTAS", "2"},
      {"NCCL_MULTI_RANK_GPU_ENABLE", "1"},  // of NCCL 2.30
  };
  for (const auto& [name, value] : settings) setenv(name, value, 1);
}

std::unique_ptr<Communicator> connect(Communicator& host, Device& device,
                                      const ConnectOptions& options) {
  const auto identities = gather_identities(host, device);
  const bool was_open = options.share_gpu && options.is_open();
  if (options.share_gpu)
    set_shared_gpu_environment(host.rank());
  else
    refuse_shared_gpus(identities);
  const std::shared_ptr<Api> api = options.load();

  Id id{};
  if (host.rank() == 0) id = api->make_id();
  host.broadcast(id.data(), static_cast<std::int64_t>(id.size()), DType::int64, 0);
  GuardOptions guard;
  guard.api = api;
  guard.check_peers = options.check_peers;
  guard.may_exit = options.abort_job;
  guard.exit = [rank = host.rank()](int code, const std::string& cause) {
    std::fprintf(stderr, "zero: rank %d: %s\n", rank, cause.c_str());
    std::fflush(nullptr);
    _exit(code);
  };
  try {
    guard.communicator = api->begin_join(id, host.size(), host.rank());
    await_progress(*api, guard.communicator, options.start_limit,
                   "rank " + std::to_string(host.rank()) + ": joining NCCL's communicator");
  } catch (const Error&) {
    // NCCL reads the environment once per process, at its first use. Torch opens NCCL without using
    // it, so that an open library alone is no fault.
    if (was_open)
      warn_once(
          "share_gpu: this process had opened NCCL before, which reads its environment once: make "
          "the Runtime before torch.distributed or whatever else uses NCCL");
    throw;
  }
  // Work may be queued at once on a blocking communicator, but not on the parent.
  NcclCommunicator parent(host.rank(), host.size(),
                          std::make_shared<Connection>(std::move(guard), nullptr));
  parent.set_time_limit(options.start_limit);
  auto data = parent.split(0, host.rank());
  data->set_time_limit(host.time_limit());
  return data;
}

}  // namespace zero::comm::nccl
