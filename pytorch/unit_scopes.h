// The open units. The first operation that uses a unit opens it, and the first operation on a unit
// outside closes it. Parameters point to the memory of open units. Call from one thread.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "pytorch/managed_parameter.h"
#include "pytorch/stream_order.h"
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
    std::vector<c10::Stream> side_streams;  // that have used the open unit
    // How often forward and backward have opened this unit in this pass.
    int forward_visits = 0, backward_visits = 0;
    bool is_open() const { return forward || backward; }
  };

  UnitScopes(std::vector<UnitState> units, std::unique_ptr<StreamOrder> order)
      : units_(std::move(units)), streams_(std::move(order)) {}

  std::vector<UnitState>& units() { return units_; }
  const std::vector<UnitState>& units() const { return units_; }

  // Begins a pass, with forward, on the engine's stream.
  void begin();
  // Begins an evaluation, which may interrupt another pass: visits do not count there.
  void begin_evaluation() {
    reshard_all();
    streams_.begin_pass();
    evaluates_ = true;
  }
  void end_evaluation() {
    reshard_all();
    evaluates_ = false;
  }
  bool in_backward() const { return in_backward_; }
  // Closes the scopes that forward has left open.
  void pre_backward();
  // Opens the units around this unit, then this unit, unless already open in this direction. The
  // current stream may use the unit.
  void unshard(int unit);
  // Opens the unit with memory for gradients, which unshard() may have postponed, and adds the
  // gradient of a parameter's tensor to the engine's.
  void move_gradient(int unit, const ManagedParameter& parameter, const at::Tensor& tensor);
  // Whether backward has yet to visit a unit again that forward used several times.
  bool more_uses_follow(int unit) const;
  void reshard_all();
  // Throws UsageError if a trained parameter was frozen: call before a step. During passes that is
  // allowed: a discriminator is frozen while the generator trains.
  void refuse_frozen() const;
  // Points the parameter to memory in the unit's scope, or to memory at rest.
  static void bind(UnitState& state, ManagedParameter& parameter);

 private:
  bool is_around(int outer, int unit) const;
  void reshard_all_but_around(int unit);
  void unshard_one(int unit);
  void open_backward_scope(UnitState& state);
  BackwardScope& open_for_gradients(int unit);
  void reshard(int unit);

  std::vector<UnitState> units_;
  SideStreams streams_;
  std::vector<int> open_;  // in the order of opening
  bool in_backward_ = false, evaluates_ = false;
};

}  // namespace zero::pytorch
