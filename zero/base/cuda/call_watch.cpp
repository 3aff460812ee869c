#include "zero/base/cuda/call_watch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "zero/base/error.h"

namespace zero::cuda {

namespace {

using namespace std::chrono_literals;

struct OfThread {
  std::shared_ptr<WatchedThreads::Slot> slot;
  std::shared_ptr<WatchedThreads> threads;
};
thread_local OfThread of_thread;

std::int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / 1ns;
}

}  // namespace

void WatchedThreads::add(const std::shared_ptr<WatchedThreads>& threads) {
  if (!threads || of_thread.threads == threads) return;
  if (!of_thread.slot) of_thread.slot = std::make_shared<Slot>();
  of_thread.threads = threads;
  const std::lock_guard lock(threads->mutex_);
  threads->slots_.push_back(of_thread.slot);
}

std::shared_ptr<WatchedThreads> WatchedThreads::of_this_thread() {
  return of_thread.threads;
}

const char* WatchedThreads::find_call_of(std::chrono::nanoseconds age) {
  const std::lock_guard lock(mutex_);
  // Threads that have ended leave theirs to this list.
  std::erase_if(slots_, [](const std::shared_ptr<Slot>& slot) { return slot.use_count() == 1; });
  for (const std::shared_ptr<Slot>& slot : slots_) {
    const char* call = slot->call;
    const std::int64_t since = slot->since;
    // Another call may have begun meanwhile: the time is then not that of the call read first.
    if (call != nullptr && now() - since > age.count() && slot->call == call &&
        slot->since == since)
      return call;
  }
  return nullptr;
}

InCall::InCall(const char* name) : slot_(of_thread.slot.get()) {
  if (slot_ == nullptr) return;
  slot_->since = now();
  slot_->call = name;
}

InCall::~InCall() {
  if (slot_ != nullptr) slot_->call = nullptr;
}

CallWatch::CallWatch(DeviceWaits& waits, GiveUp give_up)
    : waits_(waits),
      give_up_(std::move(give_up)),
      limit_(waits.limit()),
      thread_([this] { run(); }) {
  WatchedThreads::add(threads_);
}

CallWatch::~CallWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

// Longer than the limit: if a collective hangs, NCCL's guard ends the collective first, and the
// call returns.
std::chrono::milliseconds CallWatch::patience() {
  if (const auto limit = waits_.limit(); limit > 0ms) limit_ = limit;
  return limit_ + std::min<std::chrono::milliseconds>(limit_, 10s);
}

void CallWatch::run() {
  pthread_setname_np(pthread_self(), "zero-cuda");
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::clamp<std::chrono::milliseconds>(limit_ / 10, 1ms, 100ms),
                         [this] { return stopping_; }))
    if (const char* call = threads_->find_call_of(patience())) {
      lock.unlock();
      return give_up(call);
    }
}

void CallWatch::give_up(const char* call) {
  const std::string suffix = std::string("; CUDA has not come back from ") + call;
  try {
    waits_.stall();
  } catch (const Error& error) {
    give_up_(error.exit_code(), error.what() + suffix);
  } catch (const std::exception& error) {
    give_up_(Error::code, error.what() + suffix);
  }
}

}  // namespace zero::cuda
