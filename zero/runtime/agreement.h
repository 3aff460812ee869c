// Agreement of ranks: on config, model and layout at start, on the same calls, and before each step
// on its parameters; otherwise all ranks throw and state the difference.
#pragma once

#include <string>

#include "optim/step_decision.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

// Throws DisagreementError on every rank if any was given different text ("config", "model", ...),
// with the first line that differs from the root's, and advice (by default to start all alike).
void agree_on_text(Ranks& ranks, const std::string& what, const std::string& text,
                   const std::string& advice = "");

// Throws DisagreementError on every rank if any begins another call ("Engine::step()", ...), with
// ranks and calls.
void agree_on_call(Ranks& ranks, const std::string& call);

// Throws DisagreementError if the decision on a step records a difference, naming ranks and values;
// PeerFailed if a rank has failed.
void throw_if_ranks_differ(const optim::StepDecision& decision);

// Does the same if the decision records that values of optimizer groups differ, with the first
// differing line of `values`, one value per line. Collective over ranks that have made the
// decision.
void name_differing_values(Ranks& ranks, const optim::StepDecision& decision,
                           const std::string& values);

}  // namespace zero::detail
