#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "zero/base/stream.h"

namespace zero {

namespace {

class WorkerStream;

// Complete when the stream has run past `ticket_`. The stream outlives its events' use.
class WorkerEvent final : public Event {
 public:
  explicit WorkerEvent(WorkerStream& stream) : stream_(stream) {}
  bool complete() const override;
  void synchronize() override;
  void record(std::uint64_t ticket) { ticket_ = ticket; }
  WorkerStream& stream() const { return stream_; }
  std::uint64_t ticket() const { return ticket_; }

 private:
  WorkerStream& stream_;
  std::uint64_t ticket_ = 0;
};

class WorkerStream final : public ExecutionStream {
 public:
  explicit WorkerStream(const std::string& thread_name) : thread_([this] { run(); }) {
    pthread_setname_np(thread_.native_handle(), thread_name.substr(0, 15).c_str());
  }

  ~WorkerStream() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  const char* kind() const override { return "worker"; }
  std::unique_ptr<Event> create_event() override { return std::make_unique<WorkerEvent>(*this); }

  void enqueue(Work work) override {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) std::rethrow_exception(failure_);
      queue_.push_back(std::move(work));
      ++queued_;
    }
    wake_.notify_one();
  }

  void record(Event& event) override {
    const std::lock_guard lock(mutex_);
    static_cast<WorkerEvent&>(event).record(queued_);
  }

  void wait(Event& event) override {
    if (event.complete()) return event.synchronize();
    // The point that is recorded now: the event may be recorded again before this runs.
    if (const auto* worker = dynamic_cast<WorkerEvent*>(&event))
      return enqueue([&stream = worker->stream(), ticket = worker->ticket()](Stream) {
        stream.synchronize(ticket);
      });
    enqueue([&event](Stream) { event.synchronize(); });
  }

  void synchronize() override {
    std::unique_lock lock(mutex_);
    wait_for(lock, queued_);
  }

  void synchronize(std::uint64_t ticket) {
    std::unique_lock lock(mutex_);
    wait_for(lock, ticket);
  }

  bool has_run(std::uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    return done_ >= ticket;
  }

 private:
  void wait_for(std::unique_lock<std::mutex>& lock, std::uint64_t ticket) {
    finished_.wait(lock, [&] { return done_ >= ticket || failure_; });
    if (failure_) std::rethrow_exception(failure_);
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Work work = std::move(queue_.front());
      queue_.pop_front();
      const bool drop = failure_ != nullptr;
      lock.unlock();
      std::exception_ptr failure;
      try {
        if (!drop) work({});
      } catch (...) {
        failure = std::current_exception();
      }
      work = nullptr;
      lock.lock();
      if (failure) failure_ = failure;
      ++done_;
      finished_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::deque<Work> queue_;
  std::uint64_t queued_ = 0, done_ = 0;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

bool WorkerEvent::complete() const {
  return stream_.has_run(ticket_);
}
void WorkerEvent::synchronize() {
  stream_.synchronize(ticket_);
}

}  // namespace

std::unique_ptr<ExecutionStream> create_worker_stream(const std::string& thread_name) {
  return std::make_unique<WorkerStream>(thread_name);
}

}  // namespace zero
