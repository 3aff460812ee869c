#include "tools/planner/step_simulation.h"

#include <algorithm>
#include <numeric>

#include "zero/plan/access_history.h"
#include "zero/plan/offload_moves.h"

namespace zero::planner {

using namespace detail;

namespace {

// The most micro steps that are simulated: all but the first and the last take the same time.
constexpr int simulated_micro_steps = 4;
// Some work overlaps with the next step. So two steps fill this pipeline, the third is measured,
// and the last provides the overlapping work.
constexpr int simulated_steps = 4, measured_step = 2;

bool is_compute(const Instruction& instruction) {
  return instruction.stream == PlanStream::compute;
}

}  // namespace

// The instructions of some steps with their times.
struct StepSimulation::Trace {
  std::vector<const Instruction*> instructions;
  std::vector<Cost> costs;
  std::vector<TaskTimes> times;
  std::vector<std::size_t> step_ends;  // index after each step's last instruction

  // The end of a step's computation; later work of the step overlaps with the next step.
  double end_of(int step) const {
    double end = 0;
    const std::size_t begin = step == 0 ? 0 : step_ends[step - 1];
    for (std::size_t i = begin; i < step_ends[step]; ++i) {
      const PlanStream stream = instructions[i]->stream;
      if (stream == PlanStream::compute || stream == PlanStream::host)
        end = std::max(end, times[i].end);
    }
    return end;
  }
};

StepSimulation::StepSimulation(const EnginePlan& plan, const ModelShape& shape,
                               const Cluster& cluster, const Pass& pass)
    : plan_(plan),
      shape_(shape),
      cluster_(cluster),
      pass_(pass),
      kernels_(cluster, static_cast<int>(size_of(plan.policy.precision.compute)), pass.kernels),
      exchanges_(plan, cluster) {}

double StepSimulation::update_bytes(const Chunk& chunk) const {
  const SegmentTypes types = plan_.policy.types(plan_.layout.segment(chunk));
  const auto states = static_cast<double>(plan_.updates.state_names().size());
  const double per_element =
      size_of(types.sum) + 2 * states * size_of(types.state_dtype) +
      (types.has_master() ? 2 * size_of(types.master_dtype) : size_of(types.dtype)) +
      size_of(types.dtype);
  return per_element * static_cast<double>(chunk.count);
}

// Seconds of copies, sums and codecs on the rank itself.
double StepSimulation::route_work(const Route& route) const {
  const double added = route.replaces ? 0 : size_of(route.to.dtype);
  const double per_element = size_of(route.from.dtype) + size_of(route.to.dtype) + added;
  if (route.kind == Route::Kind::copy)
    return kernels_.streaming(per_element * static_cast<double>(route.count));
  const bool encoded = std::ranges::any_of(
      route.legs, [](const Leg& leg) { return leg.codec.format != comm::wire::Format::none; });
  const double whole = static_cast<double>(route.count) * route.parts();
  return (encoded ? kernels_.streaming(2 * whole * size_of(route.from.dtype)) : 0) +
         (route.replaces ? 0 : kernels_.streaming(per_element * static_cast<double>(route.count)));
}

StepSimulation::Cost StepSimulation::exchange_cost(const Instruction& instruction,
                                                   const StepPosition& at) const {
  Cost cost;
  double inside = 0;
  for (const RouteWork& work : plan_.routes.of(instruction.op, instruction.target, at))
    for (const Route& route : work.routes) {
      const ExchangeCost exchange = exchanges_.of(route);
      const double own = route_work(route);
      cost.seconds += exchange.seconds + own;
      cost.inside_bytes += exchange.inside_bytes;
      cost.between_bytes += exchange.between_bytes;
      inside += exchange.inside_seconds + own;
    }
  const Device& device = cluster_.device;
  // An exchange occupies processors of a GPU all the time, cores of a CPU only for the part in
  // memory.
  const double part = device.gpu || cost.seconds == 0 ? 1 : std::min(1.0, inside / cost.seconds);
  cost.takes = device.exchange_share * part;
  return cost;
}

StepSimulation::Cost StepSimulation::compute_cost(const Instruction& instruction) const {
  switch (instruction.op) {
    case Op::forward:
      return {kernels_.forward(shape_.work[instruction.target], pass_.tokens)};
    case Op::backward: {
      const UnitWork& work = shape_.work[instruction.target];
      const bool again = pass_.recompute && work.attention_width > 0;
      return {kernels_.backward(work, pass_.tokens, again)};
    }
    case Op::update:
      return {kernels_.streaming(update_bytes(plan_.inputs.chunks[instruction.target]))};
    default:
      break;
  }
  // The time of the gradient's norm and of the vote.
  double bytes = 0;
  for (const SegmentId& id : plan_.layout.segments()) {
    const Segment& segment = plan_.layout.segment(id);
    if (segment.trainable)
      bytes += static_cast<double>(plan_.policy.measured(segment).count() *
                                   size_of(plan_.policy.types(segment).sum));
  }
  return {kernels_.streaming(bytes) + exchanges_.agreement()};
}

// The cost of copies between memories and the file. All ranks of a node share the disk and memory.
StepSimulation::Cost StepSimulation::copy_cost(const Instruction& instruction) const {
  const Device& device = cluster_.device;
  const double ranks = cluster_.ranks_on_node();
  const auto seconds = [](double bytes, double rate) { return rate > 0 ? bytes / rate : 0; };
  const bool of_chunk = target_of(instruction.op) == Target::chunk;
  const Chunk* chunk = of_chunk ? &plan_.inputs.chunks[instruction.target] : nullptr;
  const double host = device.host.bytes_per_second, latency = device.host.latency;
  const double reads = device.file_read_rate / ranks, writes = device.file_write_rate / ranks;
  const bool streamed = chunk != nullptr && chunk->streamed;
  const auto moved = [&] {
    return static_cast<double>(moved_bytes(plan_, instruction.op, instruction.target));
  };
  switch (instruction.op) {
    case Op::fetch:
    case Op::recall:
      return {seconds(moved(), reads)};
    case Op::supply:
    case Op::download:
    case Op::upload:
      return {seconds(moved(), host) + latency};
    case Op::spill:
      return {seconds(moved(), writes)};
    case Op::load:
      return {seconds(moved(), streamed ? host : reads)};
    case Op::store:
      return {seconds(moved(), streamed ? host : writes)};
    case Op::update_on_host:
      return {seconds(update_bytes(*chunk), device.host_memory_rate / ranks)};
    default:
      return {};
  }
}

StepSimulation::Cost StepSimulation::cost(const Instruction& instruction,
                                          const StepPosition& at) const {
  switch (instruction.stream) {
    case PlanStream::compute:
      return compute_cost(instruction);
    case PlanStream::communication:
      return exchange_cost(instruction, at);
    default:
      return copy_cost(instruction);
  }
}

StepSimulation::Trace StepSimulation::trace(int micro_steps, bool repeats) const {
  Trace trace;
  std::vector<Task> tasks;
  AccessHistory<int> history;
  std::map<std::tuple<Op, int, bool, bool>, Cost> known;
  const auto add = [&](const StepPlan& plan, const StepPosition& at) {
    for (const Instruction& instruction : plan.instructions) {
      const auto [found, is_new] =
          known.try_emplace({instruction.op, instruction.target, at.first, at.last});
      if (is_new) found->second = cost(instruction, at);
      const Cost& own = found->second;
      Task task{static_cast<int>(instruction.stream), own.seconds, {}, own.takes};
      const auto number = static_cast<int>(tasks.size());
      for (const ResourceAccess& access : instruction.accesses) {
        history.for_earlier(access, [&](int earlier) {
          if (tasks[earlier].stream != task.stream) task.after.push_back(earlier);
        });
      }
      for (const ResourceAccess& access : instruction.accesses)
        history.add(access, instruction.stream, number);
      tasks.push_back(std::move(task));
      trace.instructions.push_back(&instruction);
      trace.costs.push_back(own);
    }
  };
  const StepPlans& plans = plan_.steps;
  for (int step = 0; step < simulated_steps; ++step) {
    for (int micro = 0; micro < micro_steps; ++micro) {
      const StepPosition at{micro == 0, micro + 1 == micro_steps};
      add(at.first && at.last ? plans.only
          : at.first          ? plans.first
          : at.last           ? plans.last
                              : plans.middle,
          at);
    }
    if (repeats) add(plans.repeated, {false, true});
    add(plans.update, {false, true});
    trace.step_ends.push_back(tasks.size());
  }
  trace.times = simulate(tasks, plan_stream_count, static_cast<int>(PlanStream::compute));
  return trace;
}

StepTimes StepSimulation::times_of(int micro_steps, bool repeats) const {
  const Trace steps = trace(micro_steps, repeats);
  const double begin = steps.end_of(measured_step - 1), end = steps.end_of(measured_step);
  StepTimes times{.seconds = end - begin};
  double busy = 0;
  for (std::size_t i = 0; i < steps.instructions.size(); ++i) {
    if (is_compute(*steps.instructions[i]))
      busy +=
          std::max(0.0, std::min(steps.times[i].end, end) - std::max(steps.times[i].begin, begin));
    if (i < steps.step_ends[measured_step - 1] || i >= steps.step_ends[measured_step]) continue;
    times.inside_bytes += steps.costs[i].inside_bytes;
    times.between_bytes += steps.costs[i].between_bytes;
  }
  times.exposed = std::max(0.0, times.seconds - busy);
  return times;
}

SimulatedStep StepSimulation::timeline() const {
  const auto count =
      static_cast<int>(std::min<std::int64_t>(plan_.batch.accumulation, simulated_micro_steps));
  const Trace steps = trace(count, false);
  const double begin = steps.end_of(measured_step - 1), end = steps.end_of(measured_step);
  SimulatedStep step{.seconds = end - begin};
  for (std::size_t i = 0; i < steps.instructions.size(); ++i) {
    const double from = std::max(steps.times[i].begin, begin);
    const double to = std::min(steps.times[i].end, end);
    if (to > from) step.work.push_back({steps.instructions[i], from - begin, to - begin});
  }
  return step;
}

StepTimes StepSimulation::run() const {
  const auto count = static_cast<int>(std::min<std::int64_t>(plan_.batch.accumulation, 1 << 20));
  const int few = std::min(count, simulated_micro_steps);
  StepTimes times = times_of(few);
  const auto add_growth = [&](double factor, const StepTimes& less, const StepTimes& more) {
    for (double StepTimes::*value : {&StepTimes::seconds, &StepTimes::exposed,
                                     &StepTimes::inside_bytes, &StepTimes::between_bytes})
      times.*value += factor * (more.*value - less.*value);
  };
  const StepTimes simulated = times;
  if (count > few) add_growth(count - few, times_of(few - 1), simulated);
  if (pass_.recompute_every > 0)
    add_growth(1.0 / static_cast<double>(pass_.recompute_every), simulated, times_of(few, true));
  return times;
}

}  // namespace zero::planner
