// What ranks must agree on: config, model and layout at start; before each step one control word,
// so that every rank applies the same update with the same numbers, or all stop and say where they
// differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "optim/gradient_norm.h"
#include "zero/runtime_core.h"

namespace zero::detail {

// Throws DisagreementError on every rank when one was given other text ("config", "model", ...),
// with the first line that differs from the root's.
void agree_on_text(RuntimeCore& runtime, const std::string& what, const std::string& text);

// One rank's part of the agreement before a step.
struct ControlWord {
  std::int64_t step = 0;
  std::uint64_t collectives_hash = 0;  // rolling, over everything issued so far
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

struct Verdict {
  double loss = 0;       // mean over ranks
  optim::NormBins bins;  // of all ranks
  std::vector<int> non_finite_ranks;
  bool stop_requested = false;
  bool skip = false;
  bool save_busy = false, save_failed = false;  // on any rank
};

// Throws DisagreementError where step, hash, rate or mode differ, naming ranks and values.
Verdict agree_on_step(RuntimeCore& runtime, const ControlWord& own);

}  // namespace zero::detail
