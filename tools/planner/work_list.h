// The work of a rank in some steps: instructions in the order in which the rank issues them, with
// costs, as the tasks of a simulation.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "tools/planner/simulator.h"
#include "tools/planner/step_simulation.h"
#include "zero/plan/access_history.h"

namespace zero::planner {

// Some work overlaps with the next step. So two steps fill this pipeline, the third is measured,
// and the last provides the overlapping work.
inline constexpr int simulated_steps = 4, measured_step = 2;

class WorkList {
 public:
  // `rank` must outlive this object. With `computes_alone` nothing else takes time.
  explicit WorkList(const StepSimulation& rank, bool computes_alone = false)
      : rank_(rank), computes_alone_(computes_alone) {}

  // Adds a plan, which must outlive this object. A plan of several micro batches has the position
  // of each itself.
  void add(const detail::StepPlan& plan, const detail::StepPosition& at);
  void end_step() { step_ends_.push_back(tasks_.size()); }

  const std::vector<Task>& tasks() const { return tasks_; }
  const detail::Instruction& instruction(std::size_t task) const { return *instructions_[task]; }
  // The tasks of work that other ranks must have come to as well, a vote or a transfer between
  // stages. The task after each of these has the time of the work.
  const std::vector<std::size_t>& meetings() const { return meetings_; }

  // The end of a step's computation; later work of the step overlaps with the next step. `times`
  // are those of tasks().
  double end_of(std::span<const TaskTimes> times, int step) const;
  // Returns the times of a step that lasts from `begin` to `end`.
  StepTimes times_between(std::span<const TaskTimes> times, double begin, double end,
                          int step) const;
  // Returns the work with times from `begin`, cut off at `end`.
  SimulatedStep between(std::span<const TaskTimes> times, double begin, double end) const;

 private:
  void push(const detail::Instruction& instruction, Task task, const StepSimulation::Cost& cost);

  const StepSimulation& rank_;
  bool computes_alone_;
  detail::AccessHistory<int> history_;
  std::map<std::tuple<detail::Op, int, bool, bool>, StepSimulation::Cost> known_;
  std::vector<Task> tasks_;
  std::vector<const detail::Instruction*> instructions_;  // per task
  std::vector<StepSimulation::Cost> costs_;               // per task

  std::vector<std::size_t> meetings_;
  std::vector<std::size_t> step_ends_;  // the number of tasks at each step's end
};

}  // namespace zero::planner
