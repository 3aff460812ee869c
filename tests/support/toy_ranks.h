// The small language model trained on N ranks, each a thread of this process.
#pragma once

#include "tests/support/toy_model.h"
#include "zero/testing.h"

namespace toy {

// Returns the root's results.
inline Trace train_ranks(int ranks, const zero::Config& config, int steps,
                         const char* executor = "inline", const Dims& d = {}) {
  Trace trace;
  zero::RuntimeOptions options;
  options.executor = executor;
  zero::testing::run_ranks(
      ranks,
      [&](zero::Runtime& runtime) {
        Trace own = train(runtime, d, config, steps);
        if (runtime.is_root()) trace = std::move(own);
      },
      options);
  return trace;
}

}  // namespace toy
