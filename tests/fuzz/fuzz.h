// Helpers of libFuzzer's targets.
#pragma once

#include <cstdlib>

// Aborts if a promise is broken, since fuzzers look for crashes.
inline void require(bool promise) {
  if (!promise) std::abort();
}
