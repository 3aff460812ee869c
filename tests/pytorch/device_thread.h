// A thread for backward passes, as autograd has one for each GPU: with the caller's thread-local
// state, while the caller waits.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace torch_models {

// Ends with the process. Several threads may call run(), and take turns.
class DeviceThread {
 public:
  // `around`: called once on the thread, with the loop of the thread to call.
  explicit DeviceThread(std::function<void(const std::function<void()>&)> around =
                            [](const auto& loop) { loop(); }) {
    std::thread([this, around = std::move(around)] { around([this] { loop(); }); }).detach();
  }

  // Runs `work` on the thread, at once if called on it, and rethrows its exception.
  void run(const std::function<void()>& work) {
    if (is_this()) return work();
    const std::lock_guard turn(turn_);
    const at::ThreadLocalState state;
    const int threads = at::get_num_threads();  // OpenMP has a number for each thread
    std::unique_lock lock(mutex_);
    work_ = [&] {
      at::set_num_threads(threads);
      const at::ThreadLocalStateGuard guard(state);
      work();
    };
    changed_.notify_all();
    changed_.wait(lock, [&] { return work_ == nullptr; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  bool is_this() {
    const std::lock_guard lock(mutex_);
    return std::this_thread::get_id() == thread_;
  }
  void loop() {
    std::unique_lock lock(mutex_);
    thread_ = std::this_thread::get_id();
    for (;;) {
      changed_.wait(lock, [&] { return work_ != nullptr; });
      lock.unlock();
      try {
        work_();
      } catch (...) {
        error_ = std::current_exception();
      }
      lock.lock();
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex turn_, mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  std::exception_ptr error_;
  std::thread::id thread_;
};

}  // namespace torch_models
