// Result of a comparison, for people: in a word, and in sentences.
#pragma once

#include <string>
#include <vector>

#include "tools/report/comparison.h"

namespace zero::report {

struct Verdict {
  enum class Kind {
    equal,       // all ran, and are bitwise identical
    differs,     // all ran, and the bits differ
    incomplete,  // a requested variant did not run
    single,      // one run, so no bits to compare
    plan,        // nothing was to run
  };

  Kind kind = Kind::plan;
  std::vector<std::string> sentences;
};

Verdict verdict_of(const Comparison& comparison);

}  // namespace zero::report
