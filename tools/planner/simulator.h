// A discrete-event simulation of the streams of ranks. Each stream runs its tasks in order; a task
// starts when the tasks that it waits for have ended. A running task may slow down another stream
// of its rank.
#pragma once

#include <cstdint>
#include <vector>

namespace zero::planner {

struct Task {
  int stream = 0;
  double seconds = 0;  // the duration at full rate
  std::vector<int> after = {};
  // The share of the slowed stream's rate that this running task takes, 0 to 1.
  double takes = 0;
};

struct TaskTimes {
  double begin = 0, end = 0;
};

// Returns the times of the tasks, in the same order. Each rank has `streams`, numbered one rank
// after another, and the tasks of its stream `slowed` lose the largest `takes` of the rank's tasks
// that run at the same time. Throws std::logic_error if tasks wait for each other for ever.
std::vector<TaskTimes> simulate(const std::vector<Task>& tasks, int streams, int slowed,
                                int ranks = 1);

}  // namespace zero::planner
