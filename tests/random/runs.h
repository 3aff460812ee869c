// Runs of the toy model over rank threads, from the start or from a checkpoint, and their results
// for comparison.
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
  toy::Trace before;         // up to saved_step, if the run began at the start
  std::uint64_t loaded = 0;  // the digest of the loaded state
  toy::Trace rest;           // from saved_step to last_step
  std::string encodings;     // encoded transfers: runs that differ here have different bits
  std::string problem;       // the error, or a rank whose memory differs from its plan
  int exit_code = 0;         // of the error that ended the run
  std::string printed;       // to standard error
};

Outcome run(const Job&);

// Returns an empty text if both have the same bits.
std::string difference(const toy::Trace& expected, const toy::Trace& found);

}  // namespace random_draws
