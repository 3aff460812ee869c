// What came of a comparison, for people: in a word, and in sentences.
#pragma once

#include <string>
#include <vector>

#include "tools/report/comparison.h"

namespace zero::report {

struct Verdict {
  enum class Kind {
    equal,       // all ran, and the bits are equal
    differs,     // all ran, and they are not
    incomplete,  // something that was asked for did not run
    single,      // one run: there are no other bits
    plan,        // nothing was to run
  };

  Kind kind = Kind::plan;
  std::vector<std::string> sentences;
};

Verdict verdict_of(const Comparison& comparison);

}  // namespace zero::report
