// Scopes that no plan foresees: before each the ranks say which one they open, and all gather what
// comes first for any of them. Owned by who walks a pass so; the program's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "zero/run/plan_walker.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class AgreedScopes {
 public:
  // What the ranks have agreed on: called before the gather, in the same order on all of them.
  using Agreed = std::function<void(Op op, int unit)>;

  // `subject` is what messages call the exchanges.
  AgreedScopes(TrainState& train, PlanWalker& walker, const char* subject)
      : train_(train), walker_(walker), subject_(subject) {}

  // Nothing is open. Alone, this rank asks nobody, which is right where no scope needs an exchange.
  void begin(bool alone) {
    alone_ = alone;
    open_.clear();
  }
  // Collective. Where other ranks open other scopes, this rank first takes part in what comes
  // before its own: forward before backward, and of one direction the unit that comes first in it.
  void enter(Op op, int unit, std::int64_t scope, const Agreed& agreed);
  // Likewise of a forward scope that is open already, whose parameters shall be where they were;
  // it is not told to `agreed`.
  void reopen(int unit, std::int64_t scope, const Agreed& agreed);
  // Likewise of a unit that has been open before: it is told to `agreed` as a forward scope, and
  // nothing is gathered.
  void note(int unit, const Agreed& agreed);
  // This rank opens no more. Collective: takes part in what others still open.
  void finish(const Agreed& agreed);
  // False where that scope is not open.
  bool leave(std::int64_t scope) noexcept {
    return std::erase_if(open_, [&](const Open& open) { return open.scope == scope; }) > 0;
  }
  bool inside(Op op, int unit) const {
    return std::ranges::any_of(
        open_, [&](const Open& open) { return open.op == op && open.unit == unit; });
  }
  bool inside_any() const { return !open_.empty(); }

 private:
  struct Open {
    Op op;
    int unit;
    std::int64_t scope;
  };
  enum class Kind : std::uint8_t { noted, reopened, forward, backward };
  // Smaller ones come first.
  std::int64_t word_of(Kind kind, int unit) const;
  // Agrees on what comes next; returns it.
  std::int64_t advance(std::int64_t wanted, const Agreed& agreed);
  void open(Kind kind, const Open& scope, const Agreed& agreed);
  void gather(Op op, int unit);

  TrainState& train_;
  PlanWalker& walker_;
  const char* subject_;
  bool alone_ = false;
  std::vector<Open> open_;
  StepPlan gathers_;  // of the scope that opens
};

}  // namespace zero::detail
