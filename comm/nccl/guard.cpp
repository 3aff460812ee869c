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

void Guard::launched(std::string what, std::unique_ptr<Event> ended,
                     std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  operations_.push_back({std::move(what), std::move(ended), Clock::now(), limit});
}

void Guard::check_peers() const {
  if (const Failure failure = options_.peer_failure(); failure.kind != Failure::Kind::none)
    throw PeerFailed(failure.message, failure.exit_code);
}

void Guard::check() const {
  if (!failed()) return;
  const std::lock_guard lock(mutex_);
  if (failure_.kind == Failure::Kind::stalled) throw StalledError(failure_.message);
  throw PeerFailed(failure_.message, failure_.exit_code);
}

// The limit counts from the end of the operation before: what waits in a stream has not begun.
Failure Guard::look() {
  const std::lock_guard lock(mutex_);
  while (!operations_.empty() && operations_.front().ended->complete()) {
    operations_.pop_front();
    if (!operations_.empty()) operations_.front().start = Clock::now();
  }
  if (Failure failure = options_.peer_failure(); failure.kind != Failure::Kind::none)
    return failure;
  if (options_.api->progress(options_.communicator) == Progress::failed)
    return {Failure::Kind::nccl,
            "NCCL failed" + (operations_.empty() ? "" : " in " + operations_.front().what) + ": " +
                options_.api->last_error(options_.communicator),
            17};
  if (operations_.empty()) return {};
  const Operation& oldest = operations_.front();
  if (Clock::now() - oldest.start < oldest.limit) return {};
  return {Failure::Kind::stalled,
          "waited " + duration_text(oldest.limit) + " on the GPU for " + oldest.what + " and " +
              std::to_string(operations_.size() - 1) +
              " operations behind it; look at the other ranks' last messages, or raise the time "
              "limit if they are only slow",
          18};
}

void Guard::run() {
  pthread_setname_np(pthread_self(), "zero-nccl");
  bool attached = false;
  while (!stopping_) {
    Failure failure;
    try {
      if (!std::exchange(attached, true)) options_.api->attach_thread();
      const std::lock_guard asking(asking_);
      failure = look();
    } catch (const std::exception& error) {
      failure = {Failure::Kind::nccl, error.what(), 70};
    }
    if (failure.kind != Failure::Kind::none) return end(std::move(failure));
    std::this_thread::sleep_for(options_.tick);
  }
}

void Guard::end(Failure failure) {
  const int exit_code = failure.exit_code;
  {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }
  failed_ = true;  // before inside_ is read, in one order for all threads
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
  if (options_.may_exit) options_.exit(exit_code);
}

}  // namespace zero::comm::nccl
