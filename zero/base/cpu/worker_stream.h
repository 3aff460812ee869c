// A stream on one thread of its own: the base of what orders a host's work with a device, too.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "zero/base/device_waits.h"
#include "zero/base/stream.h"

namespace zero {

// A ticket is how many pieces of work had been queued; its stream has run past it or not.
class WorkerStream final : public ExecutionStream {
 public:
  // Threads that wait for it keep to `waits` where there are some, with twice the limit for each
  // piece of work: of a device, and outliving it.
  explicit WorkerStream(const std::string& thread_name, DeviceWaits* waits = nullptr);
  // Runs what is queued.
  ~WorkerStream() override;

  const char* kind() const override { return "worker"; }
  std::unique_ptr<Event> create_event() override;
  void enqueue(Work work) override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;
  void check() override;

  // Runs in its turn even behind a failure; must not throw. Returns the ticket behind it.
  std::uint64_t enqueue_always(Work work);
  // Throws the failure of this stream.
  void synchronize(std::uint64_t ticket);
  bool has_run(std::uint64_t ticket);

 private:
  struct Item {
    Work work;
    bool always;
  };
  void wait_for(std::unique_lock<std::mutex>& lock, std::uint64_t ticket);
  void run();

  DeviceWaits* waits_;
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::deque<Item> queue_;
  std::uint64_t queued_ = 0, done_ = 0;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace zero
