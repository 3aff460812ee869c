#include "zero/plan_walker.h"

#include <algorithm>

#include "zero/base/error.h"

namespace zero::detail {

namespace {

bool recorded_by_communication(EventKind kind) {
  return kind == EventKind::parameter_ready || kind == EventKind::gradient_free;
}

}  // namespace

PlanWalker::PlanWalker(const PlanInputs& inputs, ExecutionStream& compute,
                       ExecutionStream& communication, StepClock& clock, Hooks hooks)
    : hooks_(std::move(hooks)), compute_(compute), communication_(communication), clock_(clock) {
  const std::size_t counts[event_kind_count] = {
      static_cast<std::size_t>(inputs.parameter_slots.slots),
      static_cast<std::size_t>(inputs.parameter_slots.slots),
      static_cast<std::size_t>(inputs.gradient_slots.slots),
      static_cast<std::size_t>(inputs.gradient_slots.slots), inputs.layout->flat_units.size()};
  for (int kind = 0; kind < event_kind_count; ++kind) {
    first_event_.push_back(events_.size());
    ExecutionStream& recorder =
        recorded_by_communication(static_cast<EventKind>(kind)) ? communication_ : compute_;
    for (std::size_t i = 0; i < counts[kind]; ++i) events_.push_back(recorder.create_event());
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
  compute_steps_.clear();
  communication_steps_.clear();
  for (std::size_t i = 0; i < plan.instructions.size(); ++i)
    (stream_of(plan.instructions[i].op) == PlanStream::compute ? compute_steps_
                                                               : communication_steps_)
        .push_back(i);
  next_compute_ = next_communication_ = 0;
  open_.clear();
  ended_.clear();
  open_.reserve(compute_steps_.size());
  ended_.reserve(compute_steps_.size());
  std::fill(signalled_.begin(), signalled_.end(), 0);
}

const Instruction* PlanWalker::next_compute() const {
  if (plan_ == nullptr || next_compute_ == compute_steps_.size()) return nullptr;
  return &plan_->instructions[compute_steps_[next_compute_]];
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
    if (wait.event.kind != EventKind::gradient_free || op == Op::agree) await(wait.event);
  }
  open_.push_back(compute_steps_[next_compute_++]);
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

void PlanWalker::pump() {
  const During waiting(clock_, StepClock::Activity::waiting);
  for (; next_communication_ < communication_steps_.size(); ++next_communication_) {
    const Instruction& instruction = plan_->instructions[communication_steps_[next_communication_]];
    const bool ready =
        std::all_of(instruction.waits.begin(), instruction.waits.end(),
                    [&](const Wait& wait) { return signalled_[index_of(wait.event)] >= wait.nth; });
    if (!ready) return;
    for (const Wait& wait : instruction.waits) communication_.wait(*events_[index_of(wait.event)]);
    hooks_.issue(instruction);
    for (const EventId& event : instruction.signals) {
      communication_.record(*events_[index_of(event)]);
      ++signalled_[index_of(event)];
    }
  }
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
