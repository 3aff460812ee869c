#include "zero/run/call_guard.h"

#include "zero/base/error.h"
#include "zero/runtime/agreement.h"

namespace zero::detail {

void CallGuard::require(Phase phase, const char* call) {
  check(phase, call);
  require_same_call(call);
}

void CallGuard::check(Phase phase, const char* call) const {
  if (kept_) std::rethrow_exception(kept_);
  refuse_after_failure(call);
  static constexpr const char* names[] = {"between steps", "inside a micro step",
                                          "inside an evaluation", "while a FullModel lives",
                                          "while a FullModel lives"};
  if (phase_ != phase)
    throw UsageError(std::string(call) + " was called " + names[static_cast<int>(phase_)] +
                     "; it belongs " + names[static_cast<int>(phase)]);
}

void CallGuard::require_same_call(const char* call) {
  if (strict_ && ranks_.topology().size > 1) agree_on_call(ranks_, call);
}

void CallGuard::refuse_after_failure(const char* what) const {
  if (failed()) throw UsageError(std::string(what) + " after a failure: " + failure_);
}

void CallGuard::poison(const std::string& reason) noexcept {
  if (failure_.empty()) failure_ = reason;
}

void CallGuard::poison_and_keep(const std::exception& caught) noexcept {
  kept_ = std::current_exception();
  poison(caught.what());
}

}  // namespace zero::detail
