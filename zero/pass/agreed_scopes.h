// Scopes outside of any plan: before each scope the ranks exchange the unit that each is about to
// open, and all gather the first of these. A pass is begin(), then any calls of enter(), reopen(),
// note() and leave(), then finish() on every rank. Belongs to the code that walks such a pass; for
// the program's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "zero/pass/plan_walker.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class AgreedScopes {
 public:
  // Called with each agreed scope before its gather, in the same order on all ranks.
  using Agreed = std::function<void(Op op, int unit)>;

  // `subject` names the exchanges in messages.
  AgreedScopes(TrainState& train, PlanWalker& walker, const char* subject)
      : train_(train), walker_(walker), subject_(subject) {}

  // Begins with no open scope. If `alone`, this rank exchanges nothing; correct only if no scope
  // needs an exchange.
  void begin(bool alone) {
    alone_ = alone;
    open_.clear();
  }
  // Collective. This rank first takes part in the scopes of other ranks that come before its own:
  // forward before backward, and within a direction in the order of units.
  void enter(Op op, int unit, std::int64_t scope, const Agreed& agreed);
  // Does the same for a forward scope that is open already, so that the parameters return to the
  // old addresses; `agreed` is not called.
  void reopen(int unit, std::int64_t scope, const Agreed& agreed);
  // Does the same for a unit that has been open before: `agreed` is called with a forward scope,
  // and nothing is gathered.
  void note(int unit, const Agreed& agreed);
  // Ends this rank's scopes. Collective: takes part in the scopes that other ranks still open.
  void finish(const Agreed& agreed);
  // Returns false if that scope is not open.
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
  // Smaller words come first.
  std::int64_t word_of(Kind kind, int unit) const;
  // Agrees on the next scope; returns it.
  std::int64_t advance(std::int64_t wanted, const Agreed& agreed);
  void open(Kind kind, const Open& scope, const Agreed& agreed);
  void gather(Op op, int unit);

  TrainState& train_;
  PlanWalker& walker_;
  const char* subject_;
  bool alone_ = false;
  std::vector<Open> open_;
  StepPlan gathers_;  // for the scope being opened
};

}  // namespace zero::detail
