#include <doctest/doctest.h>

#include "tests/support/mirrored_toy.h"
#include "zero/testing.h"

namespace {

toy::Trace train_on(const char* device, const zero::Config& config) {
  zero::RuntimeOptions options;
  options.device = device;
  options.threads = 1;
  zero::Runtime runtime = zero::Runtime::single(options);
  return toy::mirrored_train(runtime, {}, config, 10);
}

}  // namespace

TEST_CASE("gpu: one rank trains with the CPU's bits at every stage") {
  for (const bool bf16 : {false, true})
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(stage);
      CAPTURE(bf16);
      zero::Config config = toy::config(stage, {}, 2);
      config.bf16_enabled = bf16;
      CHECK(train_on("cuda", config) == train_on("cpu", config));
    }
}

TEST_CASE("gpu: ranks as threads, without NCCL, train with the CPU ranks' bits at every stage") {
  for (const int ranks : {2, 3})
    for (const int stage : {0, 1, 2, 3}) {
      zero::Config config = toy::config(stage, {});
      config.bf16_enabled = true;
      const auto train = [&](const char* device) {
        zero::RuntimeOptions options;
        options.device = device;
        toy::Trace trace;
        zero::testing::run_ranks(
            ranks,
            [&](zero::Runtime& runtime) {
              toy::Trace own = toy::mirrored_train(runtime, {}, config, 5);
              if (runtime.is_root()) trace = std::move(own);
            },
            options);
        return trace;
      };
      CAPTURE(ranks);
      CAPTURE(stage);
      CHECK(train("cuda") == train("cpu"));
    }
}
