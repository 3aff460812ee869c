// What ranks must agree on: config, model and layout at start, the same calls, and before each step
// what they are about to do; or all stop and say where they differ.
#pragma once

#include <span>
#include <string>

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

// The same where the decision holds that values of optimizer groups differ, with the first line
// that does of `values`, one value a line. Collective over ranks that have taken the decision.
void name_differing_values(Ranks& ranks, const optim::StepDecision& decision,
                           const std::string& values);

// Data-parallel groups that hold parts of one model decide together: the norm, what is finite, and
// requests to stop span all of them. From the votes of this group's ranks; collective over the
// model-parallel group. Throws as above.
void decide_over_model(Ranks& ranks, std::span<const optim::StepVote> votes,
                       const optim::StepRequest& request, optim::StepDecision& decision);

}  // namespace zero::detail
