#include "pytorch/gloo_messages.h"

#include <ATen/ops/from_blob.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "zero/base/error.h"

namespace zero::pytorch {
namespace {

using Clock = std::chrono::steady_clock;
// The limits are those of ZeroCore's own waits.
constexpr std::chrono::hours no_limit{24 * 365};
// The peer of a broken connection may have sent the cause, in a notice that is still in transit.
constexpr std::chrono::milliseconds time_for_notices{2000};

struct Message {
  int peer;
  bool receives;
  c10::intrusive_ptr<c10d::Work> work;
  enum State { on_its_way, complete, broken };
  std::atomic<State> state{on_its_way};
  std::string problem;  // written before `broken`

  // Runs on the line's thread.
  void wait();
  // The memory may be reused after the call.
  void cancel();
  void break_by(const std::string& text) {
    problem = text.substr(0, text.find('\n'));
    state.store(broken);
  }

 private:
  std::mutex mutex_;
  bool is_waited_for_ = false, cancelled_ = false;
};

void Message::wait() {
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return;
    is_waited_for_ = true;
  }
  try {
    if (!work->wait(no_limit)) return break_by("it was cancelled");
    state.store(complete);
  } catch (const std::exception& error) {
    break_by(error.what());
  }
}

void Message::cancel() {
  std::unique_lock lock(mutex_);
  cancelled_ = true;
  if (is_waited_for_) {
    lock.unlock();
    while (work && state.load() == on_its_way) {
      work->abort();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  work.reset();
}

}  // namespace

class GlooLine {
 public:
  GlooLine() {
    // The program's own threads handle signals.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~GlooLine() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void add(std::shared_ptr<Message> message) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(message));
    }
    changed_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      std::shared_ptr<Message> message;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ends_ || !queue_.empty(); });
        if (queue_.empty()) return;
        message = std::move(queue_.front());
        queue_.pop_front();
      }
      message->wait();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Message>> queue_;
  bool ends_ = false;
  std::thread thread_;
};

namespace {

class GlooPending final : public Pending {
 public:
  explicit GlooPending(GlooMessages& messages) : messages_(messages) {}
  ~GlooPending() override { cancel(); }

  void send(const void* data, std::int64_t bytes, int to, int tag) override {
    std::vector<at::Tensor> tensors{tensor(data, bytes)};
    start(to, false, [&] { return messages_.group().send(tensors, to, tag); });
  }
  void receive(void* data, std::int64_t bytes, int from, int tag) override {
    std::vector<at::Tensor> tensors{tensor(data, bytes)};
    start(from, true, [&] { return messages_.group().recv(tensors, from, tag); });
  }
  std::vector<int> test_received() override;
  bool empty() const override { return pending_.empty(); }
  std::set<int> waiting_for() const override;

 private:
  static at::Tensor tensor(const void* data, std::int64_t bytes) {
    return at::from_blob(const_cast<void*>(data), {bytes}, at::kByte);
  }
  template <class Start>
  void start(int peer, bool receives, const Start& begin);
  void note_broken(const Message& message);
  void cancel() noexcept;

  GlooMessages& messages_;
  std::vector<std::shared_ptr<Message>> pending_;
  Clock::time_point broken_since_{};
};

template <class Start>
void GlooPending::start(int peer, bool receives, const Start& begin) {
  auto message = std::make_shared<Message>();
  message->peer = peer;
  message->receives = receives;
  pending_.push_back(message);
  try {
    message->work = begin();
  } catch (const std::exception& error) {
    message->break_by(error.what());
    return;
  }
  messages_.line(peer, receives).add(std::move(message));
}

void GlooPending::note_broken(const Message& message) {
  const auto now = Clock::now();
  if (broken_since_ == Clock::time_point{}) broken_since_ = now;
  if (now - broken_since_ < time_for_notices) return;
  throw PeerFailed("the connection to a rank of another host broke (rank " +
                   std::to_string(message.peer) + " of the group): " + message.problem +
                   "; look for that rank's own last message, and at the network");
}

std::vector<int> GlooPending::test_received() {
  std::vector<int> ranks;
  std::vector<std::shared_ptr<Message>> left;
  std::shared_ptr<Message> broken;
  for (std::shared_ptr<Message>& message : pending_) {
    const auto state = message->state.load();
    if (state == Message::broken) broken = message;
    if (state == Message::complete && message->receives) ranks.push_back(message->peer);
    if (state != Message::complete) left.push_back(std::move(message));
  }
  pending_ = std::move(left);
  if (broken && ranks.empty()) note_broken(*broken);
  return ranks;
}

std::set<int> GlooPending::waiting_for() const {
  std::set<int> ranks;
  for (const bool receives : {true, false})
    if (ranks.empty())
      for (const auto& message : pending_)
        if (message->receives == receives && message->state.load() != Message::complete)
          ranks.insert(message->peer);
  return ranks;
}

void GlooPending::cancel() noexcept {
  for (const auto& message : pending_) {
    try {
      message->cancel();
    } catch (const std::exception&) {
      // The message has ended in another way.
    }
  }
}

}  // namespace

GlooMessages::GlooMessages(MakeGroup make_group, std::string name, int rank, int size,
                           std::chrono::milliseconds limit)
    : make_group_(std::move(make_group)),
      name_(std::move(name)),
      limit_(limit),
      group_(make_group_(name_, rank, size, limit)) {}

GlooMessages::~GlooMessages() = default;

GlooLine& GlooMessages::line(int peer, bool receives) {
  auto& line = lines_[{peer, receives}];
  if (!line) line = std::make_unique<GlooLine>();
  return *line;
}

std::unique_ptr<Pending> GlooMessages::begin() {
  return std::make_unique<GlooPending>(*this);
}

std::unique_ptr<Messages> GlooMessages::split(int color, int rank, int size) {
  const std::string name = name_ + "/" + std::to_string(splits_++) + "." + std::to_string(color);
  if (size == 1) return nullptr;
  return std::make_unique<GlooMessages>(make_group_, name, rank, size, limit_);
}

}  // namespace zero::pytorch
