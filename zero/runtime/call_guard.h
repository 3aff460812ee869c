// Checks calls to an engine against the table of calls.h: keeps the phase and the failure that has
// ended the engine, and compares the ranks' calls in strict mode. Belongs to the engine; for the
// program's thread.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "zero/base/error.h"
#include "zero/runtime/agreement.h"
#include "zero/runtime/calls.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

class CallGuard {
 public:
  // before_use: called once, before the first call that does not give values.
  CallGuard(Ranks& ranks, bool strict, std::function<void()> before_use)
      : ranks_(ranks), strict_(strict), before_use_(std::move(before_use)) {}

  Phase phase() const { return phase_; }
  // Follows a transition of the table.
  template <Call call, Phase phase>
  void enter() {
    static_assert(rule_of(call).leads_to.contains(phase));
    phase_ = phase;
  }
  bool full_model_lives() const { return calls::full.contains(phase_); }

  // Checks a collective call. Throws the error of an earlier failure, or UsageError if the call
  // does not fit the phase; in strict mode DisagreementError if ranks make different calls.
  void require(Call call) {
    check(call);
    require_same(call);
    if (before_use_ && !gives_values(call)) std::exchange(before_use_, nullptr)();
  }
  // Does the same without the comparison over ranks.
  void check(Call call) const {
    const CallRule& rule = rule_of(call);
    refuse_after_failure(rule.name);
    if (rule.valid.contains(phase_)) return;
    const Phase expected =
        rule.valid.contains(Phase::between_steps) ? Phase::between_steps : Phase::evaluation;
    throw UsageError(std::string(rule.name) + " was called " + text_of(phase_) + "; it belongs " +
                     text_of(expected));
  }
  void require_same(Call call) {
    if (strict_ && ranks_.topology().size > 1) agree_on_call(ranks_, rule_of(call).name);
  }
  // After a failure throws what poison_and_keep() kept, or UsageError: "the micro step cannot end".
  void refuse_after_failure(const char* what) const {
    if (kept_) std::rethrow_exception(kept_);
    if (failed()) throw UsageError(std::string(what) + " after a failure: " + failure_);
  }

  // Ends the engine because the step cannot be completed: every later call throws with this reason.
  void poison(const std::string& reason) noexcept {
    if (!failure_.empty()) return;
    failure_ = reason;
    if (on_failure_) on_failure_();
  }
  // Called once, with the first failure; must not throw.
  void set_on_failure(std::function<void()> call) { on_failure_ = std::move(call); }
  // Does the same in a catch block that cannot throw: the next call throws the exception.
  void poison_and_keep(const std::exception& caught) noexcept {
    kept_ = std::current_exception();
    poison(caught.what());
  }
  bool failed() const { return !failure_.empty(); }

  // Runs the work; if it throws, the engine ends.
  template <class Work>
  auto or_poison(Work&& work) {
    try {
      return work();
    } catch (const std::exception& error) {
      poison(error.what());
      throw;
    }
  }

 private:
  Ranks& ranks_;
  const bool strict_;
  std::function<void()> before_use_;
  Phase phase_ = Phase::between_steps;
  std::string failure_;
  std::function<void()> on_failure_;
  std::exception_ptr kept_;
};

}  // namespace zero::detail
