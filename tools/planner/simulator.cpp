#include "tools/planner/simulator.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace zero::planner {
namespace {

// The largest share that a stream loses: below 1, because a stopped stream would block waiting
// tasks for ever.
constexpr double most_taken = 0.999;
constexpr int idle = -1;

class Simulation {
 public:
  Simulation(const std::vector<Task>& tasks, int streams, int slowed, int ranks)
      : tasks_(tasks),
        streams_(static_cast<std::size_t>(streams)),
        slowed_(static_cast<std::size_t>(slowed)),
        times_(tasks.size()),
        done_(tasks.size()),
        queues_(streams_ * static_cast<std::size_t>(ranks)),
        next_(queues_.size()),
        running_(queues_.size(), idle),
        left_(queues_.size()) {
    for (int i = 0; i < std::ssize(tasks); ++i)
      queues_.at(static_cast<std::size_t>(tasks[i].stream)).push_back(i);
  }

  std::vector<TaskTimes> run() {
    std::size_t finished = 0;
    while (finished < tasks_.size()) {
      start_ready();
      finished += advance();
    }
    return std::move(times_);
  }

 private:
  bool is_ready(int task) const {
    return std::ranges::all_of(tasks_[task].after, [&](int other) { return done_[other] != 0; });
  }

  void start_ready() {
    for (std::size_t stream = 0; stream < queues_.size(); ++stream) {
      if (running_[stream] != idle || next_[stream] == queues_[stream].size()) continue;
      const int task = queues_[stream][next_[stream]];
      if (!is_ready(task)) continue;
      running_[stream] = task;
      left_[stream] = tasks_[task].seconds;
      times_[task].begin = now_;
      ++next_[stream];
    }
  }

  double rate_of(std::size_t stream) const {
    if (stream % streams_ != slowed_) return 1;
    double taken = 0;
    const std::size_t first = stream - slowed_;  // of the rank
    for (std::size_t other = first; other < first + streams_; ++other)
      if (other != stream && running_[other] != idle)
        taken = std::max(taken, tasks_[running_[other]].takes);
    return 1 - std::min(taken, most_taken);
  }

  // Advances to the next time at which tasks end. Returns the number of ended tasks.
  std::size_t advance() {
    double step = std::numeric_limits<double>::infinity();
    for (std::size_t stream = 0; stream < queues_.size(); ++stream)
      if (running_[stream] != idle) step = std::min(step, left_[stream] / rate_of(stream));
    if (step == std::numeric_limits<double>::infinity())
      throw std::logic_error("tasks of the simulation wait for each other");
    std::vector<double> rates(queues_.size());
    for (std::size_t stream = 0; stream < queues_.size(); ++stream) rates[stream] = rate_of(stream);
    now_ += step;
    std::size_t ended = 0;
    for (std::size_t stream = 0; stream < queues_.size(); ++stream) {
      if (running_[stream] == idle) continue;
      left_[stream] -= step * rates[stream];
      if (left_[stream] > 1e-12) continue;
      times_[running_[stream]].end = now_;
      done_[running_[stream]] = 1;
      running_[stream] = idle;
      ++ended;
    }
    return ended;
  }

  const std::vector<Task>& tasks_;
  const std::size_t streams_, slowed_;
  std::vector<TaskTimes> times_;
  std::vector<char> done_;
  // Per stream: all tasks, the number of begun tasks, the running task, and the remaining seconds.
  std::vector<std::vector<int>> queues_;
  std::vector<std::size_t> next_;
  std::vector<int> running_;
  std::vector<double> left_;
  double now_ = 0;
};

}  // namespace

std::vector<TaskTimes> simulate(const std::vector<Task>& tasks, int streams, int slowed,
                                int ranks) {
  return Simulation(tasks, streams, slowed, ranks).run();
}

}  // namespace zero::planner
