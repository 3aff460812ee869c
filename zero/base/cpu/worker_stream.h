// A stream with a thread of its own; also the base of streams that order host work with a device.
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

// Complete when the stream has passed a ticket, the number of work items queued at the record. The
// stream outlives all use of the event.
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
  // With `waits`, which belong to a device and outlive the stream, threads that wait for the stream
  // use twice the device's limit for each work item.
  explicit WorkerStream(const std::string& thread_name, DeviceWaits* waits = nullptr);
  // Runs all queued work first.
  ~WorkerStream() override;

  const char* kind() const override { return "worker"; }
  std::unique_ptr<Event> create_event() override;
  void enqueue(Work work) override { put({std::move(work), false}); }
  void record(Event& event) override;
  void wait(Event& event) override;
  void synchronize() override;
  void check() override;

  // Queues work that runs even after a failure, and must not throw. Returns the ticket.
  std::uint64_t enqueue_always(Work work) { return put({std::move(work), true}); }
  // Waits until the ticket has run; throws the stream's failure.
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
