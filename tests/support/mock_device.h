// A device that executes its streams in an order chosen by a seed, on the calling thread, within
// the limits of events. As in CUDA, an event's wait refers to the latest record before the call,
// and an event that was never recorded does not block. A worker is one more stream; after a failure
// it does nothing, but its events still complete. The device's memory is host memory, to be used in
// stream order only.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <vector>

#include "zero/base/device.h"
#include "zero/base/error.h"

namespace mock {

// one_last: the seed selects one stream, by order of creation, that waits for all others.
// one_queue: the device's streams, except workers, share one hardware queue. in_turn: one step of
// each. compute_at_once: compute runs as early as events allow, so that host work between calls,
// such as torch's operations on a CPU, can take the place of kernels on the compute stream; the
// others run as late as that allows.
enum class Order {
  compute_first,
  communication_first,
  one_last,
  random,
  one_queue,
  in_turn,
  compute_at_once
};

class Stream;

class Scheduler {
 public:
  Scheduler(Order order, std::uint64_t seed) : order_(order), seed_(seed), draw_(seed) {}

  void add(Stream& stream) { streams_.push_back(&stream); }
  void remove(Stream& stream) { std::erase(streams_, &stream); }
  // Called after every host call: runs nothing, or a few steps.
  void maybe_run();
  // Runs until done() holds; throws if nothing can run any more.
  void run_until(const std::function<bool()>& done);
  // Runs everything that can run.
  void drain() {
    const auto alone = lock();
    while (run_one()) {
    }
  }
  // Returns how often the host has waited.
  int waits() const { return waits_; }
  // Number of work items run by workers; guarded memory makes later ones fault if they access it.
  int worked() const { return worked_; }
  void guard(void* data, std::int64_t bytes) {
    guarded_.emplace_back(data, static_cast<std::size_t>(bytes));
  }
  void run_guarded(const std::function<void()>& work);
  std::uint64_t next_number() { return ++numbers_; }
  // Locks the device, since a rank's file thread uses it concurrently with the program's thread.
  std::unique_lock<std::recursive_mutex> lock() { return std::unique_lock(mutex_); }

 private:
  bool run_one();
  bool is_next(const Stream& stream) const;
  std::size_t choose(const std::vector<std::size_t>& ready);

  std::recursive_mutex mutex_;
  Order order_;
  std::uint64_t seed_;
  std::mt19937_64 draw_;
  std::vector<Stream*> streams_;
  std::vector<std::size_t> ready_;  // used by run_one()
  bool running_ = false;
  int waits_ = 0, worked_ = 0;
  std::size_t last_ = 0;  // index of the stream that ran last
  std::uint64_t numbers_ = 0;
  std::vector<std::pair<void*, std::size_t>> guarded_;
};

inline void Scheduler::run_guarded(const std::function<void()>& work) {
  const auto protect = [&](int access) {
    for (const auto& [data, bytes] : guarded_)
      if (bytes > 0) mprotect(data, bytes, access);
  };
  ++worked_;
  protect(PROT_NONE);
  try {
    work();
  } catch (...) {
    protect(PROT_READ | PROT_WRITE);
    throw;
  }
  protect(PROT_READ | PROT_WRITE);
}

using Failure = std::shared_ptr<std::exception_ptr>;  // of a stream

class Event final : public zero::Event {
 public:
  Event(Scheduler& scheduler, Failure failure)
      : scheduler_(scheduler), failure_(std::move(failure)) {}
  bool complete() const override { return *reached_ >= recorded_; }
  void synchronize() override {
    scheduler_.run_until([this] { return complete(); });
    if (*failure_) std::rethrow_exception(*failure_);
  }

  Scheduler& scheduler_;
  Failure failure_;
  std::uint64_t recorded_ = 0;
  std::shared_ptr<std::uint64_t> reached_ = std::make_shared<std::uint64_t>(0);
};

class Stream final : public zero::ExecutionStream {
 public:
  enum class Kind { device, worker };
  explicit Stream(Scheduler& scheduler, Kind kind = Kind::device)
      : scheduler_(scheduler), worker_(kind == Kind::worker) {
    scheduler_.add(*this);
  }
  ~Stream() override { scheduler_.remove(*this); }

  const char* kind() const override { return "mock"; }
  zero::Stream native() const override { return {const_cast<Stream*>(this)}; }
  std::unique_ptr<zero::Event> create_event() override {
    return std::make_unique<Event>(scheduler_, failure_);
  }

  void enqueue(Work work) override {
    check();
    add({.work = [this, work = std::move(work)] {
      if (worker_)
        scheduler_.run_guarded([&] { work({}); });
      else
        work(native());
    }});
  }
  void record(zero::Event& event) override {
    auto& own = static_cast<Event&>(event);
    add({.always = true, .work = [reached = own.reached_, number = ++own.recorded_] {
           *reached = std::max(*reached, number);
         }});
  }
  // A worker's failure ends all waits for that worker.
  void wait(zero::Event& event) override {
    check();
    auto& own = static_cast<Event&>(event);
    add({own.reached_, own.recorded_, false, [this, failure = own.failure_] {
           if (worker_ && *failure) std::rethrow_exception(*failure);
         }});
  }
  void synchronize() override {
    scheduler_.run_until([this] { return queue_.empty(); });
    check();
  }
  void check() override {
    if (*failure_) std::rethrow_exception(*failure_);
  }

  bool worker() const { return worker_; }
  bool idle() const { return queue_.empty(); }
  std::uint64_t front_number() const { return queue_.front().order; }
  bool runnable() const {
    return !queue_.empty() &&
           (queue_.front().awaited == nullptr || *queue_.front().awaited >= queue_.front().number);
  }
  void run_front() {
    const bool drop = worker_ && *failure_ && !queue_.front().always;
    const std::function<void()> work = std::move(queue_.front().work);
    queue_.pop_front();
    if (drop) return;
    try {
      work();
    } catch (...) {
      if (!worker_) throw;
      *failure_ = std::current_exception();
    }
  }

 private:
  struct Item {
    std::shared_ptr<std::uint64_t> awaited = nullptr;
    std::uint64_t number = 0;
    bool always = false;  // also after a failure
    std::function<void()> work = nullptr;
    std::uint64_t order = 0;  // among all streams
  };
  void add(Item item) {
    const auto alone = scheduler_.lock();
    item.order = scheduler_.next_number();
    queue_.push_back(std::move(item));
    scheduler_.maybe_run();
  }

  Scheduler& scheduler_;
  bool worker_;
  Failure failure_ = std::make_shared<std::exception_ptr>();
  std::deque<Item> queue_;
};

// In one queue, the oldest work of the device runs first, and blocks the rest.
inline bool Scheduler::is_next(const Stream& stream) const {
  return stream.worker() || std::all_of(streams_.begin(), streams_.end(), [&](const Stream* other) {
           return other->worker() || other->idle() ||
                  other->front_number() >= stream.front_number();
         });
}

inline bool Scheduler::run_one() {
  ready_.clear();
  for (std::size_t i = 0; i < streams_.size(); ++i)
    if (streams_[i]->runnable() && (order_ != Order::one_queue || is_next(*streams_[i])))
      ready_.push_back(i);
  if (ready_.empty()) return false;
  streams_[choose(ready_)]->run_front();
  return true;
}

// Compute is created first, communication second.
inline std::size_t Scheduler::choose(const std::vector<std::size_t>& ready) {
  switch (order_) {
    case Order::compute_first:
    case Order::compute_at_once:
      return ready.front();
    case Order::communication_first:
      return ready.back();
    case Order::one_last:
      return ready.front() == seed_ % streams_.size() && ready.size() > 1 ? ready[1]
                                                                          : ready.front();
    case Order::in_turn: {
      const auto next = std::upper_bound(ready.begin(), ready.end(), last_);
      return last_ = next == ready.end() ? ready.front() : *next;
    }
    default:
      return ready[draw_() % ready.size()];
  }
}

inline void Scheduler::maybe_run() {
  if (running_) return;
  running_ = true;
  if (order_ == Order::compute_at_once)
    while (!streams_.front()->idle() && run_one()) {
    }
  if (order_ == Order::random)
    for (std::uint64_t steps = draw_() % 8 == 0 ? draw_() % 6 : 0; steps > 0 && run_one();
         --steps) {
    }
  running_ = false;
}

inline void Scheduler::run_until(const std::function<bool()>& done) {
  const auto alone = lock();
  ++waits_;
  while (!done())
    if (!run_one()) throw std::logic_error("mock device: every stream waits");
}

class Device final : public zero::Device {
 public:
  Device(Order order, std::uint64_t seed) : scheduler_(order, seed) {}

  const char* kind() const override { return "mock"; }
  bool is_host() const override { return false; }
  std::optional<std::int64_t> free_bytes() const override { return free_bytes_; }
  void set_free_bytes(std::int64_t bytes) { free_bytes_ = bytes; }
  std::unique_ptr<zero::ExecutionStream> create_stream(Role) override {
    return std::make_unique<Stream>(scheduler_);
  }
  std::unique_ptr<zero::ExecutionStream> create_worker(const std::string&) override {
    return std::make_unique<Stream>(scheduler_, Stream::Kind::worker);
  }
  std::unique_ptr<zero::ExecutionStream> borrow_stream(zero::Stream) override {
    throw zero::UsageError("mock device: no stream to borrow");
  }
  zero::Arena reserve(std::int64_t bytes, zero::Arena::Sharing sharing,
                      const std::string& name) override {
    zero::Arena arena(bytes, sharing, name);
    reserved_ += arena.size();
    if (guards_) scheduler_.guard(arena.data(), arena.size());
    return arena;
  }
  zero::Arena reserve_pinned(std::int64_t bytes, const std::string& name) override {
    return {bytes, zero::Arena::Sharing::private_memory, name};
  }
  void copy(void* to, const void* from, std::int64_t bytes, zero::Stream) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void fill_zero(void* to, std::int64_t bytes, zero::Stream) override {
    std::memset(to, 0, static_cast<std::size_t>(bytes));
  }
  void call(std::function<void()> work, zero::Stream) override { work(); }
  std::uint64_t begin_range(const std::string&) override {
    ++open_ranges_;
    return ++ranges_;
  }
  void end_range(std::uint64_t) override { --open_ranges_; }
  // Profiler ranges since the start, and those that have not ended.
  std::uint64_t ranges() const { return ranges_; }
  std::int64_t open_ranges() const { return open_ranges_; }
  // Work of workers that accesses memory reserved from now on faults. For one rank only, if its
  // peers do not read the memory, and as long as the memory lives.
  void guard_memory() { guards_ = true; }
  // Bytes reserved so far, including freed ones.
  std::int64_t reserved() const { return reserved_; }
  Scheduler& scheduler() { return scheduler_; }

 private:
  Scheduler scheduler_;
  std::optional<std::int64_t> free_bytes_;
  bool guards_ = false;
  std::int64_t reserved_ = 0;
  std::atomic<std::uint64_t> ranges_ = 0;
  std::atomic<std::int64_t> open_ranges_ = 0;
};

}  // namespace mock
