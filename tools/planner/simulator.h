// A discrete-event simulation of streams: each runs its tasks in order, a task after the tasks that
// it waits for. Tasks may slow down another stream while they run.
#pragma once

#include <cstdint>
#include <vector>

namespace zero::planner {

struct Task {
  int stream = 0;
  double seconds = 0;  // if nothing slows it down
  std::vector<int> after = {};
  // The share of the slowed stream's rate that it takes while it runs, 0 to 1.
  double takes = 0;
};

struct TaskTimes {
  double begin = 0, end = 0;
};

// Task i may wait only for tasks before i. Tasks of `slowed` lose the largest share that a running
// task of another stream takes. Returns the times of the tasks in their order. Throws
// std::logic_error if a task waits for a later one.
std::vector<TaskTimes> simulate(const std::vector<Task>& tasks, int streams, int slowed);

}  // namespace zero::planner
