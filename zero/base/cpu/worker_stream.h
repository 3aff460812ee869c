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

class WorkerStream;

// Complete when the stream has run past a ticket, which is how many pieces of work had been queued.
// The stream outlives its events' use.
class WorkerEvent : public Event {
 public:
  explicit WorkerEvent(WorkerStream& stream) : stream_(stream) {}
  bool complete() const override;
  void synchronize() override;
  void set(std::uint64_t ticket) { ticket_ = ticket; }
  WorkerStream& stream() const { return stream_; }
  std::uint64_t ticket() const { return ticket_; }

 private:
  WorkerStream& stream_;
  std::uint64_t ticket_ = 0;
};

class WorkerStream final : public ExecutionStream {
 public:
  // Threads that wait for it keep to `waits` where there are some, with twice the limit for each
  // piece of work: of a device, and outliving it.
  explicit WorkerStream(const std::string& thread_name, DeviceWaits* waits = nullptr);
  // Runs what is queued.
  ~WorkerStream() override;

  const char* kind() const override { return "worker"; }
  std::unique_ptr<Event> create_event() override;
  void enqueue(Work work) override { put({std::move(work), false}); }
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;
  void check() override;

  // Runs in its turn even behind a failure; must not throw. Returns the ticket behind it.
  std::uint64_t enqueue_always(Work work) { return put({std::move(work), true}); }
  // Throws the failure of this stream.
  void synchronize(std::uint64_t ticket);
  bool has_run(std::uint64_t ticket);

 private:
  struct Item {
    Work work;
    bool always;
  };
  std::uint64_t put(Item item);
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
