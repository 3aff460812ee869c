// One draw: runs that must have the same bits, or a setting that may make no sense. What is wrong
// with it follows from the seed and its number alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/random/settings.h"

namespace random_draws {

struct Draw {
  Terms terms;
  std::vector<Setting> settings;
  // Resume from the checkpoint of the first of these.
  std::vector<Setting> resuming;
  std::optional<Terms> other_ranks;  // of what resumes; absent: the same terms
  bool any = false;                  // the one setting may be refused
};

Draw make_draw(std::uint64_t seed, std::uint64_t number, const std::string& directory);

struct Verdict {
  std::string problem;      // empty where all is as it should be
  int exit_code = 0;        // of a run that the problem ended
  int runs = 0, alone = 0;  // of these, such as encode otherwise than all before them
  bool refused = false;     // as a setting without sense may be
};

// Uses the directory, and leaves nothing in it.
Verdict check(const Draw&, const std::string& directory);

// The draw without all that its problem does not need.
Draw shrink(Draw, const std::string& directory);

std::string text_of(const Draw&);

}  // namespace random_draws
