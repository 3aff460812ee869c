// Torch modules are bitwise identical at every stage.
#include <functional>
#include <string>

#include "tests/pytorch/training.h"

#include "tests/pytorch/doctest_after_torch.h"

using torch_models::config_of;
using torch_models::Family;
using torch_models::Trace;
using torch_models::train_ranks;

namespace {

void check_stages(const Family& family, int ranks, int accumulation,
                  const std::function<void(zero::Config&)>& change = {}) {
  const auto trained = [&](int stage, bool reshard = true) {
    zero::Config config = config_of(stage, accumulation);
    config.zero_core.reshard_after_forward = reshard;
    if (change) change(config);
    return train_ranks(family.make, ranks, config);
  };
  const Trace expected = trained(0);
  CHECK(expected.losses.back() != expected.losses.front());
  for (int stage = 1; stage <= 3; ++stage) {
    INFO(family.name, ", stage ", stage, ", ranks ", ranks, ", accumulation ", accumulation);
    const Trace trace = trained(stage);
    CHECK(trace.losses == expected.losses);
    CHECK(trace.norms == expected.norms);
    CHECK(trace.digest == expected.digest);
    CHECK(trace.buffers == expected.buffers);
  }
  INFO(family.name, ", SHARD_GRAD_OP, ranks ", ranks);
  CHECK(trained(3, false) == expected);
}

}  // namespace

TEST_CASE("stages have equal bits") {
  for (const Family& family : torch_models::families())
    for (int ranks = 1; ranks <= 3; ++ranks) check_stages(family, ranks, 1);
}

TEST_CASE("stages have equal bits with accumulation") {
  for (const Family& family : torch_models::families()) check_stages(family, 2, 3);
}

TEST_CASE("stages have equal bits in bf16") {
  for (const Family& family : torch_models::families())
    check_stages(family, 2, 1, [](zero::Config& c) { c.bf16_enabled = true; });
}

TEST_CASE("stages have equal bits with clipping") {
  for (const Family& family : torch_models::families())
    check_stages(family, 3, 1, [](zero::Config& c) { c.gradient_clipping = 0.01; });
}
