#include "tools/planner/step_simulation.h"

#include <algorithm>
#include <numeric>

#include "tools/planner/work_list.h"
#include "zero/plan/offload_moves.h"

namespace zero::planner {

using namespace detail;

namespace {

// The most micro steps that are simulated: all but the first and the last take the same time.
constexpr int simulated_micro_steps = 4;

}  // namespace

// The instructions of some steps with their times.
struct StepSimulation::Trace {
  WorkList work;
  std::vector<TaskTimes> times;
};

StepSimulation::StepSimulation(const EnginePlan& plan, std::span<const UnitWork> work,
                               const Cluster& cluster, const Pass& pass)
    : plan_(plan),
      work_(work),
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
  if (target_of(instruction.op) == Target::boundary || instruction.op == Op::add_uses)
    return crossing_cost(instruction);
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

// A transfer between stages, or the sum of a shared parameter's gradients over stages.
StepSimulation::Cost StepSimulation::crossing_cost(const Instruction& instruction) const {
  const Op op = instruction.op;
  const bool to_before = op == Op::receive || op == Op::send_gradient;
  double bytes = 0;
  if (op == Op::add_uses) {
    for (const SegmentId& id : plan_.layout.trainable_of(instruction.target)) {
      const Segment& segment = plan_.layout.segment(id);
      bytes += 2.0 * static_cast<double>(plan_.policy.updated(segment).count()) *
               size_of(plan_.policy.types(segment).sum);
    }
  } else {
    const UnitRun& run = plan_.inputs.model->runs[instruction.target];
    const UnitDeclaration& unit = plan_.inputs.model->units[to_before ? run.begin : run.end - 1];
    const auto& array =
        *std::ranges::find(unit.kept, to_before ? input_name : output_name, &KeptDeclaration::name);
    bytes = static_cast<double>(array.elements * plan_.batch.micro) *
            size_of(array.dtype.value_or(plan_.policy.precision.compute));
  }
  const AxisPlace& pipe = plan_.on.pipe;
  const bool before = op == Op::add_uses ? pipe.rank + 1 == pipe.ranks : to_before;
  const ExchangeCost exchange = exchanges_.crossing(bytes, before ? pipe.before() : pipe.after());
  const bool sends = op != Op::receive && op != Op::receive_gradient;
  return {exchange.seconds, cluster_.device.exchange_share, sends ? exchange.inside_bytes : 0,
          sends ? exchange.between_bytes : 0};
}

StepSimulation::Cost StepSimulation::compute_cost(const Instruction& instruction) const {
  switch (instruction.op) {
    case Op::forward:
      return {kernels_.forward(work_[instruction.target], pass_.tokens)};
    case Op::backward: {
      const UnitWork& work = work_[instruction.target];
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
    // A kernel of another stream than the pass's takes the whole memory rate meanwhile.
    case PlanStream::updates:
      return {.seconds = compute_cost(instruction).seconds, .takes = 1};
    default:
      return copy_cost(instruction);
  }
}

StepSimulation::Trace StepSimulation::trace(int micro_steps, bool repeats) const {
  Trace trace{WorkList(*this), {}};
  const StepPlans& plans = plan_.steps;
  for (int step = 0; step < simulated_steps; ++step) {
    for (int micro = 0; micro < micro_steps; ++micro) {
      const StepPosition at{micro == 0, micro + 1 == micro_steps};
      trace.work.add(at.first && at.last ? plans.only
                     : at.first          ? plans.first
                     : at.last           ? plans.last
                                         : plans.middle,
                     at);
    }
    if (repeats) trace.work.add(plans.repeated, {false, true});
    trace.work.add(plans.update, {false, true});
    trace.work.end_step();
  }
  trace.times =
      simulate(trace.work.tasks(), plan_stream_count, static_cast<int>(PlanStream::compute));
  return trace;
}

StepTimes StepSimulation::times_of(int micro_steps, bool repeats) const {
  const auto [work, times] = trace(micro_steps, repeats);
  return work.times_between(times, work.end_of(times, measured_step - 1),
                            work.end_of(times, measured_step), measured_step);
}

SimulatedStep StepSimulation::timeline() const {
  const auto count =
      static_cast<int>(std::min<std::int64_t>(plan_.batch.accumulation, simulated_micro_steps));
  const auto [work, times] = trace(count, false);
  return work.between(times, work.end_of(times, measured_step - 1),
                      work.end_of(times, measured_step));
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
