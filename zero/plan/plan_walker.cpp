#include "zero/plan/plan_walker.h"

#include <algorithm>

#include "zero/base/error.h"

namespace zero::detail {

namespace {

constexpr std::size_t compute_index = 0;

PlanStream recorder_of(EventKind kind, const OffloadPlan& offload) {
  switch (kind) {
    case EventKind::gradient_free:
      if (offload.on_host) return PlanStream::copies_out;
      return offload.gradients ? PlanStream::outbound : PlanStream::communication;
    case EventKind::gradient_staged:
      return PlanStream::copies_out;
    case EventKind::parameter_ready:
    case EventKind::gradient_reduced:
    case EventKind::shard_free:
      return PlanStream::communication;
    case EventKind::shard_ready:
      return offload.on_host ? PlanStream::copies_in : PlanStream::inbound;
    case EventKind::state_ready:
    case EventKind::shard_fetched:
      return PlanStream::inbound;
    case EventKind::state_sent:
    case EventKind::shard_supplied:
    case EventKind::uploaded:
      return PlanStream::copies_in;
    case EventKind::state_stepped:
      return offload.on_host ? PlanStream::host : PlanStream::compute;
    case EventKind::stepped:
      return PlanStream::host;
    case EventKind::staging_free:
    case EventKind::spilled:
    case EventKind::state_free:
    case EventKind::saved:
      return PlanStream::outbound;
    default:
      return PlanStream::compute;
  }
}

int count_of(EventKind kind, const PlanInputs& inputs) {
  switch (kind) {
    case EventKind::parameter_ready:
    case EventKind::parameter_free:
      return inputs.parameter_slots.slots;
    case EventKind::gradient_ready:
    case EventKind::gradient_free:
    case EventKind::gradient_reduced:
    case EventKind::gradient_staged:
    case EventKind::staging_free:
      return inputs.gradient_slots.slots;
    case EventKind::state_ready:
    case EventKind::state_stepped:
    case EventKind::state_free:
    case EventKind::state_sent:
      return inputs.offload.state_slots;
    case EventKind::shard_fetched:
    case EventKind::shard_supplied:
    case EventKind::shard_ready:
    case EventKind::shard_free:
      return inputs.offload.shard_slots;
    case EventKind::agreed:
      return 1;
    default:
      return static_cast<int>(inputs.layout->flat_units.size());
  }
}

}  // namespace

PlanWalker::PlanWalker(const PlanInputs& inputs, const Streams& streams, StepClock& clock,
                       Hooks hooks)
    : inputs_(inputs),
      hooks_(std::move(hooks)),
      streams_(streams),
      compute_(*streams[compute_index]),
      clock_(clock) {
  for (int i = 0; i < event_kind_count; ++i) {
    const auto kind = static_cast<EventKind>(i);
    const auto recorder = static_cast<std::size_t>(recorder_of(kind, inputs.offload));
    first_event_.push_back(events_.size());
    for (int n = count_of(kind, inputs); n > 0; --n)
      events_.push_back(streams_[recorder]->create_event());
  }
  signalled_.resize(events_.size());
}

std::size_t PlanWalker::index_of(EventId event) const {
  return first_event_[static_cast<std::size_t>(event.kind)] + static_cast<std::size_t>(event.index);
}

std::string PlanWalker::describe(const Instruction& instruction) const {
  return std::string(name_of(instruction.op)) + " of unit " + hooks_.unit_name(instruction.target);
}

void PlanWalker::begin(const StepPlan& plan) {
  plan_ = &plan;
  for (auto& steps : steps_) steps.clear();
  for (std::size_t i = 0; i < plan.instructions.size(); ++i)
    steps_[static_cast<std::size_t>(stream_of(plan.instructions[i].op))].push_back(i);
  next_ = {};
  open_.clear();
  ended_.clear();
  open_.reserve(steps_[compute_index].size());
  ended_.reserve(steps_[compute_index].size());
  std::fill(signalled_.begin(), signalled_.end(), 0);
}

const Instruction* PlanWalker::next_compute() const {
  const std::vector<std::size_t>& steps = steps_[compute_index];
  if (plan_ == nullptr || next_[compute_index] == steps.size()) return nullptr;
  return &plan_->instructions[steps[next_[compute_index]]];
}

void PlanWalker::enter(Op op, int target) {
  settle();
  const Instruction* expected = next_compute();
  if (expected == nullptr || expected->op != op || expected->target != target)
    throw UsageError(
        describe({op, target, {}, {}}) + " was called where " +
        (expected == nullptr ? "the micro step had ended" : describe(*expected) + " comes next") +
        "; units run forward in declaration order, then backward in "
        "Engine::backward_units() order");
  pump();
  for (const Wait& wait : expected->waits) {
    if (signalled_[index_of(wait.event)] < wait.nth) {
      std::string open;
      for (const std::size_t i : open_)
        open += " " + hooks_.unit_name(plan_->instructions[i].target);
      throw UsageError(describe(*expected) + " needs the slot of a scope that is still open (unit" +
                       open +
                       "); close it first, or allow more slots "
                       "(zero_optimization.stage3_prefetch_bucket_size)");
    }
    if (wait.event.kind != EventKind::gradient_free || op != Op::backward) await(wait.event);
  }
  open_.push_back(steps_[compute_index][next_[compute_index]++]);
}

void PlanWalker::await(EventId event) {
  const During waiting(clock_, StepClock::Activity::waiting);
  compute_.wait(*events_[index_of(event)]);
}

bool PlanWalker::inside(Op op, int target) const {
  return std::any_of(open_.begin(), open_.end(), [&](std::size_t i) {
    return plan_->instructions[i].op == op && plan_->instructions[i].target == target;
  });
}

bool PlanWalker::needs(std::size_t step, int flat_unit) const {
  const Instruction& instruction = plan_->instructions[step];
  if (instruction.op != Op::forward && instruction.op != Op::backward) return false;
  const std::vector<int>& flats =
      inputs_.layout->needs_of_unit[static_cast<std::size_t>(instruction.target)];
  return std::find(flats.begin(), flats.end(), flat_unit) != flats.end();
}

bool PlanWalker::in_use(int flat_unit) const {
  return std::any_of(open_.begin(), open_.end(),
                     [&](std::size_t step) { return needs(step, flat_unit); });
}

bool PlanWalker::replaced_before_use(int flat_unit) const {
  constexpr auto gathers = static_cast<std::size_t>(PlanStream::communication);
  const auto slot = [&](int of) {
    return inputs_.parameter_slots.slot_of[static_cast<std::size_t>(of)];
  };
  const auto first = [&](std::size_t stream, const auto& fits) {
    const std::vector<std::size_t>& steps = steps_[stream];
    const auto begin = steps.begin() + static_cast<std::ptrdiff_t>(next_[stream]);
    const auto found = std::find_if(begin, steps.end(), fits);
    return found == steps.end() ? plan_->instructions.size() : *found;
  };
  const std::size_t gather = first(gathers, [&](std::size_t step) {
    return plan_->instructions[step].op == Op::gather &&
           slot(plan_->instructions[step].target) == slot(flat_unit);
  });
  return gather < first(
                      compute_index, [&](std::size_t step) { return needs(step, flat_unit); });
}

void PlanWalker::leave(Op op, int target) noexcept {
  for (std::size_t i = open_.size(); i-- > 0;) {
    const Instruction& instruction = plan_->instructions[open_[i]];
    if (instruction.op != op || instruction.target != target) continue;
    ended_.push_back(open_[i]);  // within the reserved capacity
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

void PlanWalker::settle() {
  for (const std::size_t i : ended_) {
    const Instruction& instruction = plan_->instructions[i];
    hooks_.settled(instruction);
    for (const EventId& event : instruction.signals) {
      compute_.record(*events_[index_of(event)]);
      ++signalled_[index_of(event)];
    }
  }
  ended_.clear();
}

// Reads first: an inline gather blocks on its own, and later ones should be on their way.
void PlanWalker::pump() {
  const During waiting(clock_, StepClock::Activity::waiting);
  bool progress = true;
  while (progress) {
    progress = false;
    for (const PlanStream stream :
         {PlanStream::host, PlanStream::inbound, PlanStream::copies_in, PlanStream::copies_out,
          PlanStream::outbound, PlanStream::communication})
      progress |= pump(static_cast<std::size_t>(stream));
  }
}

bool PlanWalker::pump(std::size_t stream) {
  const std::size_t before = next_[stream];
  for (; next_[stream] < steps_[stream].size(); ++next_[stream]) {
    const Instruction& instruction = plan_->instructions[steps_[stream][next_[stream]]];
    const bool ready =
        std::all_of(instruction.waits.begin(), instruction.waits.end(),
                    [&](const Wait& wait) { return signalled_[index_of(wait.event)] >= wait.nth; });
    if (!ready) break;
    for (const Wait& wait : instruction.waits)
      streams_[stream]->wait(*events_[index_of(wait.event)]);
    hooks_.issue(instruction);
    for (const EventId& event : instruction.signals) {
      streams_[stream]->record(*events_[index_of(event)]);
      ++signalled_[index_of(event)];
    }
  }
  return next_[stream] > before;
}

void PlanWalker::finish() {
  if (plan_ == nullptr) return;
  settle();
  pump();
  if (!open_.empty())
    throw UsageError(describe(plan_->instructions[open_.front()]) +
                     " is still open at the end of the micro step");
  if (const Instruction* missing = next_compute())
    throw UsageError("the micro step ended before " + describe(*missing));
  plan_ = nullptr;
}

void PlanWalker::abandon() {
  settle();
  open_.clear();  // a scope may outlive its evaluation
  plan_ = nullptr;
}

void PlanWalker::walk_without_compute() {
  while (const Instruction* step = next_compute()) {
    enter(step->op, step->target);
    leave(step->op, step->target);
  }
  finish();
}

}  // namespace zero::detail
