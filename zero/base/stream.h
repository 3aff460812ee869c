// Ordered execution: streams run work in the order given, and events order streams among each
// other. The CPU compute stream is the caller's own thread; the communication stream is either
// inline (work runs at once, on the caller's thread) or a worker thread. A device back end adds
// further kinds.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace zero {

// A native stream by value, for programs that launch kernels; null on the CPU.
struct Stream {
  void* handle = nullptr;
};

// A point in a stream. Recording again moves the event to the newer point. New events are complete.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool complete() const = 0;
  // Blocks the calling thread until complete; rethrows the failure of the recording stream.
  virtual void synchronize() = 0;
};

// Only one thread at a time queues work; no two work items of a stream run concurrently.
class ExecutionStream {
 public:
  using Work = std::function<void(Stream)>;

  virtual ~ExecutionStream() = default;
  // "inline", "worker", ...: printed at start.
  virtual const char* kind() const = 0;
  virtual Stream native() const { return {}; }
  // Whether enqueue() runs the work before it returns.
  virtual bool is_inline() const { return false; }
  virtual std::unique_ptr<Event> create_event() = 0;

  // Queues the work. After a failure in the stream, later work is dropped, and the next call here,
  // or synchronize() of an event recorded later, throws the failure.
  virtual void enqueue(Work work) = 0;
  // The event completes when all work queued so far has run. The event must come from this stream.
  virtual void record(Event& event) = 0;
  // Work queued from now on runs after the event, of any stream.
  virtual void wait(Event& event) = 0;
  // Blocks the caller until the queue is empty; throws any failure.
  virtual void synchronize() = 0;
  // Throws the first failure so far.
  virtual void check() = 0;
};

// Work runs in enqueue(), on the calling thread.
std::unique_ptr<ExecutionStream> create_inline_stream();
// Work runs on a separate thread, named for debuggers.
std::unique_ptr<ExecutionStream> create_worker_stream(const std::string& thread_name);

}  // namespace zero
