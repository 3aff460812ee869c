// What a Runtime owns: the world, the communication stream, the ledger and the compute threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/world.h"
#include "zero/base/cpu/thread_pool.h"
#include "zero/base/device.h"
#include "zero/base/ledger.h"
#include "zero/base/stream.h"
#include "zero/runtime.h"
#include "zero/runtime/accelerator.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

class RuntimeCore {
 public:
  // model_parallel: null, or the group over which parameters are split or replicated besides.
  // accelerator: one without a device is made as the options say.
  RuntimeCore(std::unique_ptr<comm::World> world, RuntimeOptions options,
              std::unique_ptr<comm::World> model_parallel = nullptr, Accelerator accelerator = {});
  ~RuntimeCore();

  comm::World& world() { return *world_; }
  const comm::Topology& topology() const { return world_->topology(); }
  const RuntimeOptions& options() const { return options_; }
  Device& device() { return accelerator_.device ? *accelerator_.device : host_device(); }
  // Of the device; and of the host beside it.
  optim::DeviceKernels& kernels() {
    return accelerator_.kernels ? *accelerator_.kernels : *host_kernels_;
  }
  optim::DeviceKernels& host_kernels() { return *host_kernels_; }
  // Of the device's memory.
  const comm::wire::DeviceCodec& codec() const { return *accelerator_.codec; }
  ExecutionStream& compute() { return *compute_; }
  ExecutionStream& communication() { return *communication_; }
  // What `communicate` queues on the communication stream comes after what is queued for computing
  // before, and before what is queued there later.
  template <class Communicate>
  void cross(const Communicate& communicate) {
    compute_->record(*written_);
    communication_->wait(*written_);
    communicate();
    communication_->record(*exchanged_);
    compute_->wait(*exchanged_);
  }
  ThreadPool& pool() { return *pool_; }
  // For work that mostly waits: a worker unless all is asked to run inline.
  std::unique_ptr<ExecutionStream> create_stream(const std::string& thread_name) {
    if (all_inline_ && device().is_host()) return create_inline_stream();
    return device().create_worker(thread_name);
  }
  Ledger& ledger() { return ledger_; }
  // As the Runtime itself calls them; engines have their own.
  Ranks& ranks() { return ranks_; }
  // Null: there is none, or this rank is alone in it.
  comm::World* model_parallel() { return model_parallel_.get(); }
  // For buffers in the device's memory, of one of the two worlds.
  comm::Communicator& communicator_on_device(comm::World& world) {
    const bool has_own = &world == world_.get() && accelerator_.communicator;
    return has_own ? *accelerator_.communicator : world.communicator();
  }
  std::string describe();

  // Tells the peers why this rank gives up. True where this rank's reason is the one to print: it
  // was the first of its node.
  bool publish_failure(const std::string& reason, int exit_code) noexcept;

  // A signal asked this rank to stop, one of those that are caught.
  bool stop_requested() const;
  void catch_signals(std::span<const int> numbers);

  // Throws what has ended the device's communicator meanwhile, or one that was split from it.
  void check_communicator() {
    if (accelerator_.communicator) accelerator_.communicator->check();
    for (comm::Communicator* part : parts_) part->check();
  }
  // For as long as a communicator that was split from the device's lives.
  void watch(comm::Communicator& part) { parts_.push_back(&part); }
  void unwatch(comm::Communicator& part) { std::erase(parts_, &part); }

 private:
  void start_streams();
  void start_pool();

  std::unique_ptr<comm::World> world_, model_parallel_;
  RuntimeOptions options_;
  Accelerator accelerator_;
  Ledger ledger_;
  Ranks ranks_;
  int exceptions_at_start_;
  bool failed_first_ = false;
  bool catches_signals_ = false;
  bool all_inline_ = false;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<optim::DeviceKernels> host_kernels_;
  std::unique_ptr<ExecutionStream> compute_, communication_;
  std::unique_ptr<Event> written_, exchanged_;  // of cross()
  std::vector<comm::Communicator*> parts_;      // of the device's communicator
};

// Copies to, from or on the device, behind what its compute stream has to do, and waits. On a CPU
// rank, where that stream's work is done at once, any thread may call it.
void copy_and_wait(RuntimeCore& runtime, void* to, const void* from, std::int64_t bytes);
// Fills memory of the device with zeros in the order of its compute stream.
void queue_zeros(RuntimeCore& runtime, void* data, std::int64_t bytes);

// Throws as require_device().
comm::WorldOptions world_options(const RuntimeOptions& options);

// Sleeps a random time when zero::testing::inject_delays() asked for it.
void maybe_delay();

}  // namespace zero::detail
