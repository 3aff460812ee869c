// What has become of a step's updates where offloaded state is updated within micro steps.
//
// Delayed (ZeRO-Offload's delayed parameter update): a step leaves its update for the next one,
// whose first micro step runs it, parameters aside, and whose step() publishes them; or drain()
// does both, before anybody looks at the state.
//
// Speculative (SuperOffload): the last micro step updates with the terms that the step will have
// unless it is skipped or clipped, all results aside; step() publishes them where it was so.
//
// The program's thread.
#pragma once

#include <optional>

#include "zero/config.h"
#include "zero/updater.h"

namespace zero::detail {

class UpdatesAside {
 public:
  explicit UpdatesAside(OffloadUpdate mode) : delayed_(mode == OffloadUpdate::delayed) {}

  // Delayed: what the step's update is, or nothing where it was skipped.
  void postpone(std::optional<UpdateTerms> terms) { terms_ = terms; }
  // Speculative: what it will be, or nothing where that cannot be known.
  void guess(std::optional<UpdateTerms> terms) { terms_ = terms; }
  // Speculative, once ranks agree: whether the guess is what was agreed on.
  void judge(const UpdateTerms& terms);
  void forget() {
    terms_.reset();
    stands_ = false;
  }

  // With which updates run aside, if they run.
  const std::optional<UpdateTerms>& terms() const { return terms_; }
  // What was updated aside is published instead of updated.
  bool stands() const { return stands_; }
  // Whether a chunk that is updated aside passes through its slot now.
  bool passes(bool within_micro_step) const {
    return within_micro_step || delayed_ ? terms_.has_value() : !stands_;
  }

 private:
  bool delayed_;
  bool stands_ = false;
  std::optional<UpdateTerms> terms_;
};

}  // namespace zero::detail
