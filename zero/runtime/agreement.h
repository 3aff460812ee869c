// What ranks must agree on: config, model and layout at start, the same calls, and before each step
// what they are about to do; or all stop and say where they differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "optim/step_decision.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

// Throws DisagreementError on every rank when one was given other text ("config", "model", ...),
// with the first line that differs from the root's, and advice (by default to start all alike).
void agree_on_text(Ranks& ranks, const std::string& what, const std::string& text,
                   const std::string& advice = "");

// Throws DisagreementError on every rank when one begins another call ("Engine::step()", ...), with
// the ranks and their calls.
void agree_on_call(Ranks& ranks, const std::string& call);

// Throws DisagreementError where the decision on a step holds a difference, naming ranks ("rank",
// "model-parallel rank") and values; PeerFailed where a rank has failed.
void throw_if_ranks_differ(const optim::StepDecision& decision, const char* noun = "rank");

}  // namespace zero::detail
