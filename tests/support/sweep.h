// Long sweeps: CI runs a part of each, a smaller one under sanitizers, and the tests with the label
// slow run all of it.
#pragma once

#include <cstdlib>

namespace sweep {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif

// Counts the cases of a sweep.
class Part {
 public:
  // One case in `one_in` is due, or all of them if ZERO_TESTS_WHOLE is set. A prime that divides no
  // number of the sweep's inner cases makes each inner case come up.
  explicit Part(int one_in, int one_in_if_sanitized)
      : one_in_(std::getenv("ZERO_TESTS_WHOLE") ? 1
                : is_sanitized                  ? one_in_if_sanitized
                                                : one_in) {}
  explicit Part(int one_in) : Part(one_in, one_in) {}

  // Returns whether the next case is due.
  bool next_is_due() { return case_++ % one_in_ == 0; }
  bool is_whole() const { return one_in_ == 1; }

 private:
  int one_in_, case_ = 0;
};

}  // namespace sweep
