#include "tools/planner/work_list.h"

#include <algorithm>

namespace zero::planner {

using namespace detail;

namespace {

bool is_compute(const Instruction& instruction) {
  return instruction.stream == PlanStream::compute;
}

bool is_computation(Op op) {
  return op == Op::forward || op == Op::backward || op == Op::update || op == Op::update_on_host;
}

}  // namespace

void WorkList::push(const Instruction& instruction, Task task, const StepSimulation::Cost& cost) {
  tasks_.push_back(std::move(task));
  instructions_.push_back(&instruction);
  costs_.push_back(cost);
}

void WorkList::add(const StepPlan& plan, const StepPosition& at) {
  const bool in_stages = rank_.plan().on.pipe.ranks > 1;
  for (const Instruction& instruction : plan.instructions) {
    const StepPosition own =
        instruction.micro_batches == 1
            ? at
            : StepPosition{instruction.micro_batch == 0,
                           instruction.micro_batch + 1 == instruction.micro_batches};
    const auto [found, is_new] =
        known_.try_emplace({instruction.op, instruction.target, own.first, own.last});
    if (is_new) found->second = rank_.cost(instruction, own);
    StepSimulation::Cost cost = found->second;
    if (computes_alone_ && !is_computation(instruction.op)) cost.seconds = cost.takes = 0;
    Task task{static_cast<int>(instruction.stream), cost.seconds, {}, cost.takes};
    for (const ResourceAccess& access : instruction.accesses)
      history_.for_earlier(access, [&](int earlier) {
        if (tasks_[earlier].stream != task.stream) task.after.push_back(earlier);
      });
    if (in_stages &&
        (target_of(instruction.op) == Target::boundary || instruction.op == Op::agree)) {
      meetings_.push_back(tasks_.size());
      push(instruction, {task.stream, 0, std::exchange(task.after, {})}, {});
    }
    const auto number = static_cast<int>(tasks_.size());
    for (const ResourceAccess& access : instruction.accesses)
      history_.add(access, instruction.stream, number);
    push(instruction, std::move(task), cost);
  }
}

double WorkList::end_of(std::span<const TaskTimes> times, int step) const {
  double end = 0;
  const std::size_t begin = step == 0 ? 0 : step_ends_[step - 1];
  for (std::size_t i = begin; i < step_ends_[step]; ++i) {
    const PlanStream stream = instructions_[i]->stream;
    if (stream == PlanStream::compute || stream == PlanStream::host ||
        stream == PlanStream::updates)
      end = std::max(end, times[i].end);
  }
  return end;
}

StepTimes WorkList::times_between(std::span<const TaskTimes> times, double begin, double end,
                                  int step) const {
  StepTimes result{.seconds = end - begin};
  double busy = 0;
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    if (is_compute(*instructions_[i]))
      busy += std::max(0.0, std::min(times[i].end, end) - std::max(times[i].begin, begin));
    if (i < step_ends_[step - 1] || i >= step_ends_[step]) continue;
    result.inside_bytes += costs_[i].inside_bytes;
    result.between_bytes += costs_[i].between_bytes;
  }
  result.exposed = std::max(0.0, result.seconds - busy);
  return result;
}

SimulatedStep WorkList::between(std::span<const TaskTimes> times, double begin, double end) const {
  SimulatedStep step{.seconds = end - begin};
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    const double from = std::max(times[i].begin, begin), to = std::min(times[i].end, end);
    if (to > from) step.work.push_back({instructions_[i], from - begin, to - begin});
  }
  return step;
}

}  // namespace zero::planner
