#include "zero/pass/pass.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "zero/base/error.h"
#include "zero/pass/forward_order.h"

namespace zero::detail {

namespace {

constexpr std::int64_t nothing_more = std::numeric_limits<std::int64_t>::max();

}  // namespace

void Pass::agree(const Terms& terms) {
  end();
  agreed_ = true;
  terms_ = terms;
  in_backward_ = false;
  order_.clear();
  unreduced_.assign(train_.plan.inputs.gradient_slots.slots, -1);
  if (terms.shows_order) walker_.forget_contents();
}

// Ends take effect one by one, each after its gradients are complete.
void Pass::settle() {
  for (; const Instruction* ended = walker_.ended(); walker_.settle_next())
    for (const int flat : ended->completes) gradients_.complete(flat);
}

void Pass::pass_over_next() {
  const Instruction& next = *walker_.next_compute();
  walker_.enter(next.op, next.target);
  walker_.leave(next.op, next.target);
  settle();
}

void Pass::enter(OpenScope scope) {
  int& forwards = forwards_[scope.unit];
  scope.use = scope.op == Op::forward ? forwards++ : forwards = std::max(0, forwards - 1);
  if (once_each_)
    scope.use = walker_.next_compute() == nullptr ? 0 : walker_.next_compute()->micro_batch;
  if (agreed_) return open(scope.op == Op::forward ? Turn::forward : Turn::backward, scope);
  settle();
  if (walker_.may_come(scope.op, scope.unit))
    while (!walker_.next_compute()->is(scope.op, scope.unit)) pass_over_next();
  walker_.enter(scope.op, scope.unit, scope.number);
  open_.push_back(scope);
}

bool Pass::leave(const OpenScope& scope) noexcept {
  if (std::erase(open_, scope) == 0) return false;
  if (!agreed_ && walker_.leave(scope.op, scope.unit, scope.number))
    hidden_.hide_parameters(scope.unit, walker_);
  return true;
}

void Pass::rest() {
  if (agreed_) {
    train_.runtime.compute().synchronize();
    while (!terms_.alone && advance(nothing_more) != nothing_more) {
    }
  } else {
    settle();
    while (walker_.forward_remains() && walker_.may_skip()) pass_over_next();
    walker_.finish_forward();
  }
}

void Pass::finish() {
  if (agreed_) {
    rest();
    for (int& flat : unreduced_)
      if (flat >= 0) reduce(std::exchange(flat, -1));
  } else if (walker_.active()) {
    settle();
    while (open_.empty() && walker_.may_skip()) pass_over_next();
    walker_.finish();
  }
  open_.clear();
}

std::vector<OpenScope> Pass::leave_plan() {
  settle();
  std::vector<OpenScope> open = std::exchange(open_, {});
  for (auto scope = open.rbegin(); scope != open.rend(); ++scope)
    walker_.leave(scope->op, scope->unit, scope->number);
  finish();
  return open;
}

void Pass::serve() {
  while (walker_.next_compute() != nullptr) pass_over_next();
  walker_.finish();
}

void Pass::open(Turn turn, const OpenScope& scope) {
  train_.runtime.compute().synchronize();  // no kernel reads a slot any more
  take(turn, scope.unit);
  open_.push_back(scope);
}

void Pass::take(Turn turn, int unit) {
  const std::int64_t units = std::ssize(train_.model.units);
  const std::int64_t own =
      static_cast<std::int64_t>(turn) * units + (turn == Turn::backward ? units - 1 - unit : unit);
  while (advance(own) != own) {
  }
}

std::int64_t Pass::advance(std::int64_t wanted) {
  const char* subject = terms_.shows_order ? "the order of units in the first pass"
                                           : "the order of units in a pass that has left the plan";
  const std::int64_t next =
      terms_.alone ? wanted : std::ranges::min(train_.ranks.gather_words(subject, {wanted}));
  if (next == nothing_more) return next;
  const std::int64_t units = std::ssize(train_.model.units);
  const auto turn = static_cast<Turn>(next / units);
  const auto place = static_cast<int>(next % units);
  const bool backward = turn == Turn::backward;
  const int unit = backward ? static_cast<int>(units) - 1 - place : place;
  const Op op = backward ? Op::backward : Op::forward;
  if (turn != Turn::reopened) record(op, unit);
  if (turn != Turn::noted) gather(op, unit);
  return next;
}

void Pass::record(Op op, int unit) {
  if (op == Op::backward) {
    in_backward_ = true;
    make_room(unit);
  } else if (!in_backward_ && !terms_.alone) {
    if (terms_.shows_order) require_nesting(train_.model, order_, unit);
    order_.push_back(unit);
  }
}

void Pass::gather(Op op, int unit) {
  const PlanInputs& inputs = train_.plan.inputs;
  if (!inputs.policy->parameters_sharded) return;
  std::vector<int> missing;
  for (const int flat : train_.layout().needs_of_unit[unit]) {
    const int content = walker_.contents()[inputs.parameter_slots.slot_of[flat]];
    if (content == flat) continue;
    for (const OpenScope& open : open_)
      if (content >= 0 && train_.layout().needs(open.unit, content))
        throw UsageError(std::string(name_of(op)) + " of unit " + train_.model.units[unit].name +
                         " needs the slot of unit " + train_.model.units[open.unit].name +
                         ", whose scope is still open; close it first, or declare "
                         "UnitSpec::within() if one runs within the other");
    missing.push_back(flat);
  }
  exchange_ = make_gather_plan(inputs, missing);
  walker_.walk(exchange_);
  train_.runtime.communication().synchronize();
}

// If a slot contains another unit's gradient, reduces that first.
void Pass::make_room(int unit) {
  if (!train_.plan.empties_gradients()) return;
  for (const int flat : train_.layout().needs_of_unit[unit]) {
    const int slot = train_.plan.inputs.gradient_slots.slot_of[flat];
    if (slot < 0) continue;
    if (unreduced_[slot] >= 0 && unreduced_[slot] != flat) reduce(unreduced_[slot]);
    unreduced_[slot] = flat;
  }
}

void Pass::reduce(int flat_unit) {
  gradients_.complete(flat_unit);
  train_.runtime.compute().synchronize();
  exchange_ = train_.plan.reduction_of({flat_unit});
  walker_.walk(exchange_);
  train_.runtime.communication().synchronize();
}

}  // namespace zero::detail
