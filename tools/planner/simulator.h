// A discrete-event simulation of streams. Each stream runs its tasks in order; a task starts when
// the tasks that it waits for have ended. Tasks may slow down another stream while they run.
#pragma once

#include <cstdint>
#include <vector>

namespace zero::planner {

struct Task {
  int stream = 0;
  double seconds = 0;  // its duration if nothing slows it down
  std::vector<int> after = {};
  // The share of the slowed stream's rate that this task takes while it runs, 0 to 1.
  double takes = 0;
};

struct TaskTimes {
  double begin = 0, end = 0;
};

// Returns the times of the tasks, in their order. A task may wait only for earlier tasks. Tasks of
// the stream `slowed` lose the largest `takes` of the tasks that run on other streams. Throws
// std::logic_error if a task waits for a later one.
std::vector<TaskTimes> simulate(const std::vector<Task>& tasks, int streams, int slowed);

}  // namespace zero::planner
