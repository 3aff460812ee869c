#include "comm/nccl/guard.h"

#include <pthread.h>

#include <future>
#include <utility>

#include "comm/call.h"
#include "zero/base/error.h"

namespace zero::comm::nccl {

Guard::Guard(GuardOptions options) : options_(std::move(options)), thread_([this] { run(); }) {}

Guard::~Guard() {
  stopping_ = true;
  thread_.join();
}

void Guard::announce(std::string what, std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  operations_.push_back({std::move(what), nullptr, Clock::now(), limit});
}

void Guard::launched(std::unique_ptr<Event> ended) {
  const std::lock_guard lock(mutex_);
  operations_.back().ended = std::move(ended);
}

void Guard::forget() {
  const std::lock_guard lock(mutex_);
  operations_.pop_back();
}

void Guard::check() const {
  if (!failed()) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(failure_);
}

bool Guard::take_oldest() {
  std::shared_ptr<Event> ended;
  {
    const std::lock_guard lock(mutex_);
    if (!operations_.empty()) ended = operations_.front().ended;
  }
  if (!ended || !ended->complete()) return false;
  // Launched operations are not taken back, so the oldest is still the same.
  const std::lock_guard lock(mutex_);
  operations_.pop_front();
  if (!operations_.empty()) operations_.front().start = Clock::now();
  return true;
}

std::string Guard::oldest() {
  const std::lock_guard lock(mutex_);
  return operations_.empty() ? "" : operations_.front().what;
}

// The limit counts from the end of the previous operation, because an operation that waits in a
// stream has not begun.
void Guard::look() {
  while (take_oldest()) {
  }
  options_.check_peers();
  if (options_.api->progress(options_.communicator) == Progress::failed) {
    const std::string what = oldest();
    throw PeerFailed("NCCL failed" + (what.empty() ? "" : " in " + what) + ": " +
                     options_.api->last_error(options_.communicator));
  }
  const std::lock_guard lock(mutex_);
  if (operations_.empty()) return;
  const Operation& oldest = operations_.front();
  if (Clock::now() - oldest.start < oldest.limit) return;
  throw StalledError(
      "waited " + duration_text(oldest.limit) + " on the GPU for " + oldest.what + " and " +
      std::to_string(operations_.size() - 1) +
      " operations behind it; look at the other ranks' last messages, or raise the time limit if "
      "they are only slow");
}

void Guard::run() {
  pthread_setname_np(pthread_self(), "zero-nccl");
  bool attached = false;
  while (!stopping_) {
    try {
      if (!std::exchange(attached, true)) options_.api->attach_thread();
      const std::lock_guard asking(asking_);
      look();
    } catch (const PeerFailed& error) {
      return end(std::current_exception(), error);
    } catch (const StalledError& error) {
      return end(std::current_exception(), error);
    } catch (const std::exception& error) {
      const PeerFailed failed(error.what(), Error::code);
      return end(std::make_exception_ptr(failed), failed);
    }
    std::this_thread::sleep_for(options_.tick);
  }
}

void Guard::end(std::exception_ptr failure, const zero::Error& cause) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }
  failed_ = true;  // before inside_ is read, in the same order for all threads
  const Clock::time_point deadline = Clock::now() + options_.abort_limit;
  while (inside_ > 0 && Clock::now() < deadline) std::this_thread::sleep_for(options_.tick);
  if (inside_ == 0) {
    // Detached: an abort that blocks must not hold up this thread's end.
    auto done = std::make_shared<std::promise<void>>();
    std::future<void> ended = done->get_future();
    std::thread([api = options_.api, communicator = options_.communicator, done] {
      try {
        api->attach_thread();
        api->abort(communicator);
      } catch (const std::exception&) {
        // The communicator is of no more use either way.
      }
      done->set_value();
    }).detach();
    if (ended.wait_until(deadline) == std::future_status::ready) {
      aborted_ = true;
      return;
    }
  }
  leaked_ = true;
  if (options_.may_exit) options_.exit(cause.exit_code(), cause.what());
}

}  // namespace zero::comm::nccl
