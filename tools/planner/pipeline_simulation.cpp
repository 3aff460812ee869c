#include "tools/planner/pipeline_simulation.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "tools/planner/work_list.h"
#include "zero/plan/pipeline_schedule.h"

namespace zero::planner {

using namespace detail;

namespace {

// A vote of all stages, or a transfer over the boundary between stage `lower` and the next in the
// ring, by its number in the order of issue: the same for all its ranks.
using Meeting = std::tuple<bool, bool, int, int>;  // vote, backward, lower, number

class Meetings {
 public:
  explicit Meetings(int stages) : stages_(stages) {}

  Meeting next(const Instruction& instruction, int stage) {
    const Op op = instruction.op;
    const bool vote = op == Op::agree;
    const bool backward = op == Op::receive_gradient || op == Op::send_gradient;
    const bool to_before = op == Op::receive || op == Op::send_gradient;
    const int lower = vote ? 0 : to_before ? AxisPlace{stage, stages_}.before() : stage;
    int& number = met_[{vote, backward, lower, stage}];
    return {vote, backward, lower, number++};
  }

 private:
  const int stages_;
  std::map<std::tuple<bool, bool, int, int>, int> met_;
};

}  // namespace

struct PipelineSimulation::Trace {
  std::vector<StepPlan> plans;  // per stage, of all micro batches
  std::vector<WorkList> lists;
  std::vector<std::vector<TaskTimes>> times;

  // All stages end a step by the same vote, and then update.
  double end_of(int step) const {
    double end = 0;
    for (std::size_t s = 0; s < lists.size(); ++s)
      end = std::max(end, lists[s].end_of(times[s], step));
    return end;
  }
};

PipelineSimulation::PipelineSimulation(const PlannedRow& row) : row_(row) {
  for (const auto& stage : row.stages)
    stages_.push_back(
        std::make_unique<StepSimulation>(stage->plan, stage->work, row.cluster, row.pass));
}

// With the rest that the micro batches leave when divided by the stages, which schedules depend on.
int PipelineSimulation::simulated_micro_batches() const {
  const std::int64_t count = row_.plan().batch.accumulation, stages = std::ssize(stages_);
  return static_cast<int>(std::min(count, 3 * stages + count % stages));
}

PipelineSimulation::Trace PipelineSimulation::trace(int micro_batches, bool computes_alone) const {
  Trace trace;
  const auto count = static_cast<int>(stages_.size());
  const Timetable timetable = timetable_of({row_.config.pipeline, count, micro_batches});
  for (const auto& stage : row_.stages) {
    PlanInputs inputs = stage->plan.inputs;
    const std::vector<HalfPass> schedule =
        schedule_of(timetable, stage->plan.on.pipe.rank, stage->model);
    inputs.room = room_of(schedule, static_cast<int>(inputs.room.size()));
    trace.plans.push_back(make_task_plan(inputs, stage->plan.sync_each(), schedule));
  }
  std::vector<Task> tasks;
  std::vector<std::size_t> begins;
  std::map<Meeting, std::vector<std::size_t>> meetings;
  for (int at = 0; at < count; ++at) {
    WorkList& list = trace.lists.emplace_back(*stages_[at], computes_alone);
    for (int step = 0; step < simulated_steps; ++step) {
      list.add(trace.plans[at], {true, true});
      list.add(row_.stages[at]->plan.steps.update, {false, true});
      list.end_step();
    }
    const std::size_t begin = tasks.size();
    begins.push_back(begin);
    for (Task task : list.tasks()) {
      task.stream += at * plan_stream_count;
      for (int& other : task.after) other += static_cast<int>(begin);
      tasks.push_back(std::move(task));
    }
    Meetings numbers(count);
    for (const std::size_t task : list.meetings())
      meetings[numbers.next(list.instruction(task), at)].push_back(begin + task);
  }
  for (const auto& [meeting, arrivals] : meetings)
    for (const std::size_t own : arrivals)
      for (const std::size_t other : arrivals)
        tasks[own + 1].after.push_back(static_cast<int>(other));
  const std::vector<TaskTimes> times =
      simulate(tasks, plan_stream_count, static_cast<int>(PlanStream::compute), count);
  for (int at = 0; at < count; ++at) {
    const auto begin = times.begin() + static_cast<std::ptrdiff_t>(begins[at]);
    trace.times.emplace_back(begin, begin + std::ssize(trace.lists[at].tasks()));
  }
  return trace;
}

StepTimes PipelineSimulation::times_of(int micro_batches, bool computes_alone) const {
  const Trace steps = trace(micro_batches, computes_alone);
  const double begin = steps.end_of(measured_step - 1), end = steps.end_of(measured_step);
  StepTimes result{.seconds = end - begin};
  for (std::size_t s = 0; s < steps.lists.size(); ++s) {
    const StepTimes own = steps.lists[s].times_between(steps.times[s], begin, end, measured_step);
    result.exposed += own.exposed / static_cast<double>(steps.lists.size());
    if (own.inside_bytes + own.between_bytes > result.inside_bytes + result.between_bytes)
      result.inside_bytes = own.inside_bytes, result.between_bytes = own.between_bytes;
  }
  return result;
}

StepTimes PipelineSimulation::run() const {
  const auto count = static_cast<double>(row_.plan().batch.accumulation);
  const int few = simulated_micro_batches(), stages = static_cast<int>(stages_.size());
  const auto times = [&](bool computes_alone) {
    StepTimes all = times_of(few, computes_alone);
    if (count <= few) return all;
    const StepTimes less = times_of(few - stages, computes_alone), more = all;
    for (double StepTimes::*value : {&StepTimes::seconds, &StepTimes::exposed,
                                     &StepTimes::inside_bytes, &StepTimes::between_bytes})
      all.*value += (count - few) / stages * (more.*value - less.*value);
    return all;
  };
  const StepTimes alone = times(true);
  StepTimes result = times(false);
  result.bubble = alone.exposed / alone.seconds;
  return result;
}

SimulatedStages PipelineSimulation::timelines() const {
  Trace trace = this->trace(simulated_micro_batches(), false);
  const double begin = trace.end_of(measured_step - 1), end = trace.end_of(measured_step);
  SimulatedStages stages;
  for (std::size_t s = 0; s < trace.lists.size(); ++s)
    stages.steps.push_back(trace.lists[s].between(trace.times[s], begin, end));
  stages.plans = std::move(trace.plans);
  return stages;
}

}  // namespace zero::planner
