// One draw: runs that must have the same bits, or a setting that may make no sense. The check's
// result follows from the seed and its number alone.
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
  // Runs that resume from the checkpoint of the first setting.
  std::vector<Setting> resuming;
  std::optional<Terms> other_ranks;  // for runs that resume; absent: the same terms
  bool any = false;                  // the one setting may be refused
};

Draw make_draw(std::uint64_t seed, std::uint64_t number, const std::string& directory);

struct Verdict {
  std::string problem;      // empty if everything is right
  int exit_code = 0;        // of a run that the problem ended
  int runs = 0, alone = 0;  // runs, and those whose encoding differs from all before
  bool refused = false;     // as allowed for a setting without sense
};

// Uses the directory, and leaves nothing in it.
Verdict check(const Draw&, const std::string& directory);

// Returns the draw reduced to the parts that its problem needs.
Draw shrink(Draw, const std::string& directory);

std::string text_of(const Draw&);

}  // namespace random_draws
