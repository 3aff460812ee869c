// Runs of the toy model over rank threads: from the start or from a checkpoint, and what they leave
// to compare.
#pragma once

#include <string>

#include "tests/random/settings.h"

namespace random_draws {

constexpr int saved_step = 2, last_step = 4;

struct Job {
  const Terms& terms;
  const Setting& setting;
  std::string load = {}, save = {};  // directories of checkpoints, or empty
};

struct Outcome {
  toy::Trace before;         // up to saved_step, of a run from the start
  std::uint64_t loaded = 0;  // the digest of what was loaded
  toy::Trace rest;           // from saved_step to last_step
  std::string encodings;     // what travels encoded: runs that differ here have bits of their own
  std::string problem;       // what ended the run, or a rank whose memory is not that of its plan
  int exit_code = 0;         // of what ended the run
  std::string printed;       // to standard error
};

Outcome run(const Job&);

// Empty where both have the same bits.
std::string difference(const toy::Trace& expected, const toy::Trace& found);

}  // namespace random_draws
