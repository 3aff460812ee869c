// For libFuzzer's targets.
#pragma once

#include <cstdlib>

// A broken promise is a crash, which is what a fuzzer looks for.
inline void require(bool promise) {
  if (!promise) std::abort();
}
