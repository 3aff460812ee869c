// What ranks must agree on: config, model and layout at start; before each step one step vote,
// so that every rank applies the same update with the same numbers, or all stop and say where they
// differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "optim/gradient_norm.h"
#include "zero/runtime/ranks.h"

namespace zero::detail {

// Throws DisagreementError on every rank when one was given other text ("config", "model", ...),
// with the first line that differs from the root's, and advice (by default to start all alike).
void agree_on_text(Ranks& ranks, const std::string& what, const std::string& text,
                   const std::string& advice = "");

// Throws DisagreementError on every rank when one begins another call ("Engine::step()", ...), with
// the ranks and their calls.
void agree_on_call(Ranks& ranks, const std::string& call);

// One rank's part of the agreement before a step.
struct StepVote {
  std::int64_t step = 0;
  std::uint64_t issued_hash = 0;  // rolling, over everything issued so far
  double learning_rate = 0;
  double loss = 0;
  optim::NormBins bins;
  bool stop_requested = false;
  bool skip = false;      // StepOptions::inspect decided so
  bool inspects = false;  // a second exchange follows
  // How this rank's part of a save that is written behind stands: 0 done or none, else the exit
  // code of its failure.
  int save_code = 0;
  bool save_busy = false;
};

struct StepDecision {
  double loss = 0;       // mean over ranks
  optim::NormBins bins;  // of all ranks
  std::vector<int> non_finite_ranks;
  bool stop_requested = false;
  bool skip = false;
  bool save_busy = false, save_failed = false;  // on any rank
};

// Throws DisagreementError where step, hash, rate or mode differ, naming ranks and values.
StepDecision agree_on_step(Ranks& ranks, const StepVote& own);

// Brings together the decisions of data-parallel groups that hold parts of one model: norm, finite
// or not, and requests to stop span all of them. Errors as above.
void agree_over_model(Ranks& model_parallel, const StepVote& own, StepDecision& decision);

// What ranks may differ in before a step. Values travel as words: of a learning rate its bits.
enum class Agreed : std::uint8_t {
  step,
  collectives,
  learning_rate,
  inspects,
  skip,
  applied_steps,
};

struct Disagreement {
  Agreed what{};
  std::int64_t step = 0;
  std::int64_t value_of_root = 0;
  int rank = 0;
  std::int64_t value = 0;
};
[[noreturn]] void raise(const char* noun, const Disagreement& found);

}  // namespace zero::detail
