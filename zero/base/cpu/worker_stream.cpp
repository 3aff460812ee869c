#include "zero/base/cpu/worker_stream.h"

#include <pthread.h>

#include "zero/base/thread.h"

namespace zero {

bool WorkerEvent::complete() const {
  return stream_.has_run(ticket_);
}

void WorkerEvent::synchronize() {
  stream_.synchronize(ticket_);
}

WorkerStream::WorkerStream(const std::string& thread_name, DeviceWaits* waits)
    : waits_(waits), thread_(start_thread("the stream " + thread_name, [this] { run(); })) {
  pthread_setname_np(thread_.native_handle(), thread_name.substr(0, 15).c_str());
}

WorkerStream::~WorkerStream() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::unique_ptr<Event> WorkerStream::create_event() {
  return std::make_unique<WorkerEvent>(*this);
}

std::uint64_t WorkerStream::put(Item item) {
  std::uint64_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (failure_ && !item.always) std::rethrow_exception(failure_);
    queue_.push_back(std::move(item));
    ticket = ++queued_;
  }
  wake_.notify_one();
  return ticket;
}

void WorkerStream::record(Event& event) {
  const std::lock_guard lock(mutex_);
  static_cast<WorkerEvent&>(event).set(queued_);
}

void WorkerStream::wait(Event& event) {
  if (event.complete()) return event.synchronize();
  // Captures the current ticket, because the event may be recorded again before this runs.
  if (const auto* worker = dynamic_cast<WorkerEvent*>(&event))
    return enqueue([&stream = worker->stream(), ticket = worker->ticket()](Stream) {
      stream.synchronize(ticket);
    });
  enqueue([&event](Stream) { event.synchronize(); });
}

void WorkerStream::synchronize() {
  std::unique_lock lock(mutex_);
  wait_for(lock, queued_);
}

void WorkerStream::check() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void WorkerStream::synchronize(std::uint64_t ticket) {
  std::unique_lock lock(mutex_);
  wait_for(lock, ticket);
}

bool WorkerStream::has_run(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  return done_ >= ticket;
}

// Uses twice the limit, because the work itself waits with the limit and has a better message.
void WorkerStream::wait_for(std::unique_lock<std::mutex>& lock, std::uint64_t ticket) {
  const auto ended = [&] { return done_ >= ticket || failure_; };
  if (waits_ == nullptr) finished_.wait(lock, ended);
  while (!ended()) {
    const std::uint64_t before = done_;
    if (!finished_.wait_for(lock, 2 * waits_->limit(), [&] { return done_ != before || failure_; }))
      waits_->stall();
  }
  if (failure_) std::rethrow_exception(failure_);
}

void WorkerStream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    const bool drop = failure_ != nullptr && !item.always;
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (!drop) item.work({});
    } catch (...) {
      failure = std::current_exception();
    }
    item.work = nullptr;
    lock.lock();
    if (failure) failure_ = failure;
    ++done_;
    finished_.notify_all();
  }
}

std::unique_ptr<ExecutionStream> create_worker_stream(const std::string& thread_name) {
  return std::make_unique<WorkerStream>(thread_name);
}

}  // namespace zero
