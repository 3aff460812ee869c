// Which units are open: opened by the first operation that uses them, closed by the first one that
// uses a unit beside them. It binds parameters when their unit opens and lets them rest when it
// closes. One thread at a time.
#pragma once

#include <optional>
#include <vector>

#include "pytorch/managed_parameter.h"
#include "zero/zero.h"

namespace zero::pytorch {

class UnitScopes {
 public:
  struct UnitState {
    Unit* unit = nullptr;
    int parent = -1;  // -1: none
    std::vector<ManagedParameter> parameters;
    std::optional<ForwardScope> forward;
    std::optional<BackwardScope> backward;
    // In this pass: how often forward came here, and backward.
    int forward_visits = 0, backward_visits = 0;
    bool is_open() const { return forward || backward; }
  };

  explicit UnitScopes(std::vector<UnitState> units) : units_(std::move(units)) {}

  std::vector<UnitState>& units() { return units_; }
  const std::vector<UnitState>& units() const { return units_; }

  // A pass begins, with its forward.
  void begin();
  // An evaluation, around which another pass may go on: its visits do not count.
  void begin_evaluation() {
    close_all();
    evaluates_ = true;
  }
  void end_evaluation() {
    close_all();
    evaluates_ = false;
  }
  bool in_backward() const { return in_backward_; }
  // Closes what forward has left open.
  void begin_backward();
  // Opens the unit, and those around it first; nothing where it is open in this direction.
  void open(int unit);
  // The same with memory for gradients, where open() may have left that to a later use.
  BackwardScope& open_for_gradients(int unit);
  // Of a unit that forward came to several times: whether backward has yet to come here again.
  bool more_uses_follow(int unit) const;
  void close_all();
  // Where the parameter's memory is now: in the unit's scope, or at rest.
  static void bind(UnitState& state, ManagedParameter& parameter);

 private:
  bool is_around(int outer, int unit) const;
  void close_beside(int unit);
  void open_one(int unit);
  void open_backward_scope(UnitState& state);
  void close(int unit);

  std::vector<UnitState> units_;
  std::vector<int> open_;  // in the order of opening
  bool in_backward_ = false, evaluates_ = false;
};

}  // namespace zero::pytorch
