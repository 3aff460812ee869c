#include "pytorch/unit_scopes.h"

#include <algorithm>

namespace zero::pytorch {

void UnitScopes::begin() {
  reshard_all();
  streams_.begin_pass();
  in_backward_ = false;
  for (UnitState& unit : units_) unit.forward_visits = unit.backward_visits = 0;
}

void UnitScopes::pre_backward() {
  if (in_backward_) return;
  reshard_all();
  in_backward_ = true;
}

bool UnitScopes::is_around(int outer, int unit) const {
  for (int at = unit; at >= 0; at = units_[at].parent)
    if (at == outer) return true;
  return false;
}

bool UnitScopes::more_uses_follow(int unit) const {
  return units_[unit].backward_visits < units_[unit].forward_visits;
}

void UnitScopes::unshard(int unit) {
  if (!units_[unit].is_open()) {
    reshard_all_but_around(unit);
    unshard_one(unit);
  }
  streams_.enter(units_[unit].side_streams);
}

void UnitScopes::reshard_all_but_around(int unit) {
  // Closes the last opened unit first, so that inner units close before outer units.
  for (auto i = open_.size(); i-- > 0;)
    if (!is_around(open_[i], unit)) reshard(open_[i]);
}

void UnitScopes::unshard_one(int unit) {
  UnitState& state = units_[unit];
  if (state.is_open()) return;
  if (state.parent >= 0) unshard_one(state.parent);
  if (evaluates_) {
    state.forward.emplace(state.unit->forward());
  } else if (!in_backward_) {
    ++state.forward_visits;
    state.forward.emplace(state.unit->forward());
  } else if (++state.backward_visits < state.forward_visits) {
    state.forward.emplace(state.unit->forward());
  } else {
    open_backward_scope(state);
  }
  open_.push_back(unit);
  for (ManagedParameter& parameter : state.parameters) bind(state, parameter);
}

void UnitScopes::bind(UnitState& state, ManagedParameter& parameter) {
  if (state.forward)
    parameter.bind(address_in(*state.forward, parameter));
  else if (state.backward)
    parameter.bind(address_in(*state.backward, parameter));
  else
    parameter.reshard();
}

void UnitScopes::open_backward_scope(UnitState& state) {
  state.backward.emplace(state.unit->backward());
}

BackwardScope& UnitScopes::open_for_gradients(int unit) {
  UnitState& state = units_[unit];
  if (!state.is_open()) {
    // A use without a gradient of its input reads no parameter in backward, and has no visit there.
    state.backward_visits = std::max(state.backward_visits, state.forward_visits - 1);
    unshard(unit);
  }
  if (!state.backward) {
    // Inner units only read this unit's values, whose memory does not move.
    reshard_all_but_around(unit);
    streams_.leave(state.side_streams);
    state.forward.reset();
    state.backward_visits = state.forward_visits;
    open_backward_scope(state);
  }
  return *state.backward;
}

void UnitScopes::move_gradient(int unit, const ManagedParameter& parameter,
                               const at::Tensor& tensor) {
  BackwardScope& scope = open_for_gradients(unit);
  std::vector<c10::Stream>& side_streams = units_[unit].side_streams;
  streams_.enter(side_streams);
  parameter.move_gradient(tensor, scope);
  streams_.leave(side_streams);  // a gradient from another stream may be added next
}

void UnitScopes::reshard(int unit) {
  UnitState& state = units_[unit];
  streams_.leave(state.side_streams);
  for (ManagedParameter& parameter : state.parameters) parameter.reshard();
  state.forward.reset();
  state.backward.reset();
  std::erase(open_, unit);
}

void UnitScopes::refuse_frozen() const {
  for (const UnitState& unit : units_)
    for (const ManagedParameter& parameter : unit.parameters)
      for (const at::Tensor& tensor : parameter.tensors())
        if (parameter.trainable() && !tensor.requires_grad())
          throw UsageError(
              "parameter " + parameter.name() +
              " was trained when it became the engine's and is frozen now "
              "(requires_grad is false): its momentum and weight decay would continue. "
              "Freeze it before, or let it require a gradient again before the step "
              "and give its group the learning rate 0");
}

void UnitScopes::reshard_all() {
  while (!open_.empty()) reshard(open_.back());
}

}  // namespace zero::pytorch
