// What a Runtime owns: the ranks, the communication stream, the ledger and the compute threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"
#include "zero/base/cpu/thread_pool.h"
#include "zero/base/device.h"
#include "zero/base/ledger.h"
#include "zero/base/stream.h"
#include "zero/device/accelerator.h"
#include "zero/zero.h"

namespace zero::detail {

class RuntimeCore {
 public:
  RuntimeCore(std::unique_ptr<comm::World> world, RuntimeOptions options);
  RuntimeCore(std::unique_ptr<comm::World> world, RuntimeOptions options, Accelerator accelerator);
  ~RuntimeCore();

  comm::World& world() { return *world_; }
  const comm::Topology& topology() const { return world_->topology(); }
  const RuntimeOptions& options() const { return options_; }
  Device& device() { return accelerator_.device ? *accelerator_.device : host_device(); }
  // Of a device that is not the host.
  optim::DeviceKernels& kernels() { return *accelerator_.kernels; }
  ExecutionStream& compute() { return *compute_; }
  ExecutionStream& communication() { return *communication_; }
  ThreadPool& pool() { return *pool_; }
  // Of a thread of the device that is about to work like one of the pool.
  void join_pool() const noexcept;
  // For work that mostly waits: a worker unless all is asked to run inline.
  std::unique_ptr<ExecutionStream> create_stream(const std::string& thread_name);
  Ledger& ledger() { return ledger_; }
  std::string describe();

  using Transfer = std::function<void(comm::Communicator&, Stream)>;
  // Queues an operation on device buffers, behind everything queued so far; the communicator's
  // calls go to the stream that the operation is given.
  void communicate(Transfer operation);
  // Queues an operation whose bytes count as control traffic.
  void communicate_control(Transfer operation);
  // An operation on host buffers; waits for it. Its bytes count as control traffic.
  void exchange(std::string_view subject,
                const std::function<void(comm::Communicator&)>& operation);
  // The same on device buffers.
  void exchange_on_device(std::string_view subject, const Transfer& operation);
  // Every rank's words, in rank order.
  std::vector<std::int64_t> gather_words(std::string_view subject,
                                         const std::vector<std::int64_t>& own);
  // The root's text on every rank.
  std::string broadcast_text(std::string_view subject, std::string text);
  std::int64_t control_bytes() const { return control_bytes_; }

  // Tells the peers why this rank gives up. True where this rank's reason is the one to print: it
  // was the first of its node.
  bool publish_failure(const std::string& reason, int exit_code) noexcept;

  // A signal asked this rank to stop.
  bool stop_requested() const;

  // Throws what has ended the device's communicator meanwhile.
  void check_communicator() {
    if (accelerator_.communicator) accelerator_.communicator->check();
  }

 private:
  void start_streams();
  void start_pool();
  comm::Communicator& data_communicator() {
    return accelerator_.communicator ? *accelerator_.communicator : world_->communicator();
  }

  std::unique_ptr<comm::World> world_;
  RuntimeOptions options_;
  Accelerator accelerator_;
  Ledger ledger_;
  std::int64_t control_bytes_ = 0;
  int exceptions_at_start_;
  bool failed_first_ = false;
  bool all_inline_ = false;
  CpuList pool_cpus_;  // beside the device; empty: those of the process
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<ExecutionStream> compute_, communication_;
};

// Throws as require_device().
comm::WorldOptions world_options(const RuntimeOptions& options);

std::int64_t total_bytes(const comm::Traffic& traffic);

// Sleeps a random time when zero::testing::inject_delays() asked for it.
void maybe_delay();

}  // namespace zero::detail
