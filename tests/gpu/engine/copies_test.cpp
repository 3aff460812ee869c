// Times by the replacement's clock: a byte takes a nanosecond, and nothing else takes time.
#include <doctest/doctest.h>

#include "tests/support/mirrored_toy.h"
#include "zero/zero.h"

TEST_CASE("every copy to and from host memory is timed, none of them twice") {
  zero::RuntimeOptions options;
  options.device = "cuda";
  options.threads = 1;
  zero::Runtime runtime = zero::Runtime::single(options);
  for (const int stage : {1, 2, 3})
    for (const double ratio : {0.5, 1.}) {
      zero::Config config = toy::config(stage, {}, 2);
      config.bf16_enabled = true;
      config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
      config.zero_optimization.offload_optimizer.ratio = ratio;
      if (ratio == 1) config.zero_optimization.offload_param.device = zero::OffloadDevice::cpu;
      config.zero_core.offload_chunk_bytes = 1;
      zero::EngineReport report;
      toy::mirrored_train(runtime, {}, config, 3, &report);
      const std::vector<zero::CopyUse>& copies = report.ranks.front().copies;
      REQUIRE(copies.size() == 2);
      CAPTURE(stage);
      CAPTURE(ratio);
      for (const zero::CopyUse& use : copies) {
        CHECK(use.bytes > 0);
        CHECK(use.seconds == doctest::Approx(static_cast<double>(use.bytes) * 1e-9));
      }
    }
}
