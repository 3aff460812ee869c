// A device that executes its streams in an order of a seed's choosing, on the thread that asks:
// whatever the events allow. As CUDA's, an event's wait binds to the latest record at the call, and
// an event that was never recorded lets it pass. Its memory is host memory, to be touched in stream
// order alone.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "zero/base/device.h"
#include "zero/base/error.h"

namespace mock {

// one_last: of the streams, in the order in which they were made, the seed's waits for all others.
enum class Order { compute_first, communication_first, one_last, random };

class Stream;

class Scheduler {
 public:
  Scheduler(Order order, std::uint64_t seed) : order_(order), seed_(seed), draw_(seed) {}

  void add(Stream& stream) { streams_.push_back(&stream); }
  void remove(Stream& stream) { std::erase(streams_, &stream); }
  // After every call of the host: nothing, or a few steps.
  void maybe_run();
  // Runs until done() holds; throws when nothing can run any more.
  void run_until(const std::function<bool()>& done);
  // All that can run.
  void drain() {
    while (run_one()) {
    }
  }
  // How often the host has waited.
  int waits() const { return waits_; }

 private:
  bool run_one();
  std::size_t choose(const std::vector<std::size_t>& ready);

  Order order_;
  std::uint64_t seed_;
  std::mt19937_64 draw_;
  std::vector<Stream*> streams_;
  bool running_ = false;
  int waits_ = 0;
};

class Event final : public zero::Event {
 public:
  explicit Event(Scheduler& scheduler) : scheduler_(scheduler) {}
  bool complete() const override { return *reached_ >= recorded_; }
  void synchronize() override {
    scheduler_.run_until([this] { return complete(); });
  }

  Scheduler& scheduler_;
  std::uint64_t recorded_ = 0;
  std::shared_ptr<std::uint64_t> reached_ = std::make_shared<std::uint64_t>(0);
};

class Stream final : public zero::ExecutionStream {
 public:
  explicit Stream(Scheduler& scheduler) : scheduler_(scheduler) { scheduler_.add(*this); }
  ~Stream() override { scheduler_.remove(*this); }

  const char* kind() const override { return "mock"; }
  zero::Stream native() const override { return {const_cast<Stream*>(this)}; }
  std::unique_ptr<zero::Event> create_event() override {
    return std::make_unique<Event>(scheduler_);
  }

  void enqueue(Work work) override {
    queue_.push_back({nullptr, 0, [this, work = std::move(work)] { work(native()); }});
    scheduler_.maybe_run();
  }
  void record(zero::Event& event) override {
    auto& own = static_cast<Event&>(event);
    queue_.push_back({nullptr, 0, [reached = own.reached_, number = ++own.recorded_] {
                        *reached = std::max(*reached, number);
                      }});
    scheduler_.maybe_run();
  }
  void wait(zero::Event& event) override {
    auto& own = static_cast<Event&>(event);
    queue_.push_back({own.reached_, own.recorded_, [] {}});
    scheduler_.maybe_run();
  }
  void synchronize() override {
    scheduler_.run_until([this] { return queue_.empty(); });
  }

  bool runnable() const {
    return !queue_.empty() &&
           (queue_.front().awaited == nullptr || *queue_.front().awaited >= queue_.front().number);
  }
  void run_front() {
    const std::function<void()> work = std::move(queue_.front().work);
    queue_.pop_front();
    work();
  }

 private:
  struct Item {
    std::shared_ptr<std::uint64_t> awaited;
    std::uint64_t number;
    std::function<void()> work;
  };

  Scheduler& scheduler_;
  std::deque<Item> queue_;
};

inline bool Scheduler::run_one() {
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < streams_.size(); ++i)
    if (streams_[i]->runnable()) ready.push_back(i);
  if (ready.empty()) return false;
  streams_[choose(ready)]->run_front();
  return true;
}

// Compute is created first, communication second.
inline std::size_t Scheduler::choose(const std::vector<std::size_t>& ready) {
  switch (order_) {
    case Order::compute_first:
      return ready.front();
    case Order::communication_first:
      return ready.back();
    case Order::one_last:
      return ready.front() == seed_ % streams_.size() && ready.size() > 1 ? ready[1]
                                                                          : ready.front();
    default:
      return ready[draw_() % ready.size()];
  }
}

inline void Scheduler::maybe_run() {
  if (order_ != Order::random || running_) return;
  running_ = true;
  for (std::uint64_t steps = draw_() % 8 == 0 ? draw_() % 6 : 0; steps > 0 && run_one(); --steps) {
  }
  running_ = false;
}

inline void Scheduler::run_until(const std::function<bool()>& done) {
  ++waits_;
  while (!done())
    if (!run_one()) throw std::logic_error("mock device: every stream waits");
}

class Device final : public zero::Device {
 public:
  Device(Order order, std::uint64_t seed) : scheduler_(order, seed) {}

  const char* kind() const override { return "mock"; }
  bool is_host() const override { return false; }
  int numa_node() const override { return numa_node_; }
  void set_numa_node(int node) { numa_node_ = node; }
  std::unique_ptr<zero::ExecutionStream> create_stream(Role) override {
    return std::make_unique<Stream>(scheduler_);
  }
  std::unique_ptr<zero::ExecutionStream> borrow_stream(zero::Stream) override {
    throw zero::UsageError("mock device: no stream to borrow");
  }
  zero::Arena reserve(std::int64_t bytes, zero::Arena::Sharing sharing,
                      const std::string& name) override {
    zero::Arena arena(bytes, sharing, name);
    reserved_ += arena.size();
    if (guards_) guarded_.emplace_back(arena.data(), static_cast<std::size_t>(arena.size()));
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
  void call(std::function<void()> work, zero::Stream) override {
    ++calls_;
    protect(PROT_NONE);
    work();
    protect(PROT_READ | PROT_WRITE);
  }
  // Work of the host that touches memory reserved from now on faults. For one rank alone, whose
  // peers do not read it, and as long as that memory lives.
  void guard_memory() { guards_ = true; }
  int calls() const { return calls_; }
  // Bytes, whether they live or not.
  std::int64_t reserved() const { return reserved_; }
  Scheduler& scheduler() { return scheduler_; }

 private:
  void protect(int access) {
    for (const auto& [data, bytes] : guarded_)
      if (bytes > 0) mprotect(data, bytes, access);
  }

  Scheduler scheduler_;
  bool guards_ = false;
  int numa_node_ = -1;
  int calls_ = 0;
  std::int64_t reserved_ = 0;
  std::vector<std::pair<void*, std::size_t>> guarded_;
};

}  // namespace mock
