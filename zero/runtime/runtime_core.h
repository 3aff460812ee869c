// State of a Runtime: the world, the communication stream, the ledger and the compute threads.
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
  // accelerator: without a device, made according to the options.
  RuntimeCore(std::unique_ptr<comm::World> world, RuntimeOptions options,
              Accelerator accelerator = {});
  ~RuntimeCore();

  comm::World& world() const { return *world_; }
  // This rank among all.
  int world_rank() const { return world_->topology().rank; }
  // This rank among the data ranks.
  const comm::Topology& topology() const {
    return data_ ? data_->topology() : everyone_.topology();
  }
  const RuntimeOptions& options() const { return options_; }
  Device& device() { return accelerator_.device ? *accelerator_.device : host_device(); }
  // Kernels of the device, and of the host.
  optim::DeviceKernels& kernels() {
    return accelerator_.kernels ? *accelerator_.kernels : *host_kernels_;
  }
  optim::DeviceKernels& host_kernels() { return *host_kernels_; }
  // The codec for the device's memory.
  const comm::wire::DeviceCodec& codec() const { return *accelerator_.codec; }
  ExecutionStream& compute() { return *compute_; }
  ExecutionStream& communication() { return *communication_; }
  // Runs `communicate`, whose work on the communication stream runs after the compute work queued
  // before, and before the compute work queued later.
  template <class Communicate>
  void cross(const Communicate& communicate) {
    compute_->record(*written_);
    communication_->wait(*written_);
    communicate();
    communication_->record(*exchanged_);
    compute_->wait(*exchanged_);
  }
  ThreadPool& pool() { return *pool_; }
  // Creates a stream for work that mostly waits: a worker unless everything was requested inline.
  std::unique_ptr<ExecutionStream> create_stream(const std::string& thread_name) {
    if (all_inline_ && device().is_host()) return create_inline_stream();
    return device().create_worker(thread_name);
  }
  Ledger& ledger() { return ledger_; }
  // The groups of ranks with the Runtime's terms; engines have separate terms.
  Ranks& everyone() { return everyone_; }
  Ranks& ranks() { return data_ ? *data_ : everyone_; }  // the data ranks
  // The ranks that hold parts of the same parameters; null without tensor parallelism.
  Ranks* tensor() { return tensor_.get(); }
  // The ranks that hold the stages of the same model; null without a pipeline.
  Ranks* pipe() { return pipe_.get(); }
  // The world's communicator for buffers in the device's memory.
  comm::Communicator& communicator_on_device() {
    return accelerator_.communicator ? *accelerator_.communicator : world_->communicator();
  }
  std::string describe();

  // Sends the peers the reason why this rank fails. Returns true if this rank should print the
  // reason, because this failure was the node's first.
  bool publish_failure(const std::string& reason, int exit_code) noexcept;

  // Whether a caught signal has requested a stop of this rank.
  bool stop_requested() const;
  void catch_signals(std::span<const int> numbers);

  // Throws the error that has ended the device's communicator, or a communicator split from there.
  void check_communicator() {
    if (accelerator_.communicator) accelerator_.communicator->check();
    for (comm::Communicator* part : parts_) part->check();
  }
  // Runtime::cut_into_stages().
  void cut_into_stages(int stages);
  int engines = 0;  // that exist

  // Registers a communicator that was split from the device's; call unwatch() before destroying it.
  void watch(comm::Communicator& part) { parts_.push_back(&part); }
  void unwatch(comm::Communicator& part) { std::erase(parts_, &part); }

 private:
  void start_streams();
  void start_communication();
  void split_ranks();
  int share_of_cores() const;
  void start_pool();

  std::unique_ptr<comm::World> world_;
  RuntimeOptions options_;
  Accelerator accelerator_;
  Ledger ledger_;
  Ranks everyone_;
  int exceptions_at_start_;
  bool failed_first_ = false;
  bool catches_signals_ = false;
  bool all_inline_ = false;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<optim::DeviceKernels> host_kernels_;
  std::unique_ptr<ExecutionStream> compute_, communication_;
  std::unique_ptr<Event> written_, exchanged_;   // for cross()
  std::vector<comm::Communicator*> parts_;       // split from the device's communicator
  std::unique_ptr<Ranks> data_, tensor_, pipe_;  // null if these are all ranks, or this one
};

// Copies to, from or on the device, after the work queued on the compute stream, and waits. On a
// CPU rank, whose stream has no pending work, any thread.
void copy_and_wait(RuntimeCore& runtime, void* to, const void* from, std::int64_t bytes);
// Fills device memory with zeros in the order of the compute stream.
void queue_zeros(RuntimeCore& runtime, void* data, std::int64_t bytes);

// Throws like require_device().
comm::WorldOptions world_options(const RuntimeOptions& options);

// Sleeps a random time if zero::testing::inject_delays() requested it.
void maybe_delay();

}  // namespace zero::detail
