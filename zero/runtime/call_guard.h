// Validity of calls to an engine: its current phase, the failure that has ended it, and in strict
// mode whether all ranks make the same call. Belongs to the engine; for the program's thread.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "zero/base/error.h"
#include "zero/runtime/agreement.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

// The state between two calls of the program.
enum class Phase : std::uint8_t {
  between_steps,
  micro_step,
  evaluation,
  full_model,            // a FullModel exists, and this rank holds it
  full_model_elsewhere,  // a FullModel exists on another rank
};

class CallGuard {
 public:
  CallGuard(Ranks& ranks, bool strict) : ranks_(ranks), strict_(strict) {}

  Phase phase() const { return phase_; }
  void enter(Phase phase) { phase_ = phase; }
  bool full_model_lives() const {
    return phase_ == Phase::full_model || phase_ == Phase::full_model_elsewhere;
  }

  // Checks a collective call ("Engine::step()"). Throws the error of an earlier failure, or
  // UsageError if the call does not fit the phase; in strict mode DisagreementError if ranks make
  // different calls.
  void require(Phase phase, const char* call) {
    check(phase, call);
    require_same_call(call);
  }
  // Does the same without the comparison over ranks.
  void check(Phase phase, const char* call) const {
    if (kept_) std::rethrow_exception(kept_);
    refuse_after_failure(call);
    static constexpr const char* names[] = {"between steps", "inside a micro step",
                                            "inside an evaluation", "while a FullModel lives",
                                            "while a FullModel lives"};
    if (phase_ != phase)
      throw UsageError(std::string(call) + " was called " + names[static_cast<int>(phase_)] +
                       "; it belongs " + names[static_cast<int>(phase)]);
  }
  void require_same_call(const char* call) {
    if (strict_ && ranks_.topology().size > 1) agree_on_call(ranks_, call);
  }
  // Throws UsageError after a failure: "the micro step cannot end".
  void refuse_after_failure(const char* what) const {
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
  Phase phase_ = Phase::between_steps;
  std::string failure_;
  std::function<void()> on_failure_;
  std::exception_ptr kept_;
};

}  // namespace zero::detail
