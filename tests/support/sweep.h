// Long sweeps: CI runs a part of each, and the tests with the label slow run all of it.
#pragma once

#include <cstdlib>

namespace sweep {

// Counts the cases of a sweep.
class Part {
 public:
  // One case in `one_in` is due, or all of them if ZERO_TESTS_WHOLE is set. A prime that divides no
  // number of the sweep's inner cases makes each inner case come up.
  explicit Part(int one_in) : one_in_(std::getenv("ZERO_TESTS_WHOLE") ? 1 : one_in) {}

  // Returns whether the next case is due.
  bool next_is_due() { return case_++ % one_in_ == 0; }
  bool is_whole() const { return one_in_ == 1; }

 private:
  int one_in_, case_ = 0;
};

}  // namespace sweep
