// Torch modules in the memory of a device. The engine's streams run as late as their events allow,
// while torch's operations, which replace kernels on the compute stream, run at once.
#include <string>

#include "tests/pytorch/training.h"

#include "tests/pytorch/doctest_after_torch.h"

#include "tests/support/mock_ranks.h"

using torch_models::config_of;
using torch_models::Family;
using torch_models::Trace;

namespace {

Trace train_on_device(const Family& family, int ranks, const zero::Config& config) {
  Trace trace;
  mock::run_ranks(ranks, mock::Order::compute_at_once, 1, [&](zero::Runtime& runtime) {
    Trace own = torch_models::train(family.make(), runtime, config, 4);
    if (runtime.is_root()) trace = std::move(own);
  });
  return trace;
}

void check_family(const Family& family, int ranks, zero::Config config, int first_stage = 0) {
  const Trace expected = torch_models::train_ranks(family.make, ranks, config);
  for (int stage = first_stage; stage <= 3; ++stage) {
    INFO(family.name, ", stage ", stage, ", ranks ", ranks);
    config.zero_optimization.stage = stage;
    CHECK(train_on_device(family, ranks, config) == expected);
  }
}

}  // namespace

TEST_CASE("modules train in a device's memory with the bits of the CPU") {
  for (const Family& family : torch_models::families())
    for (int ranks = 1; ranks <= 2; ++ranks) check_family(family, ranks, config_of(0));
}

TEST_CASE("modules train in a device's memory with accumulation") {
  for (const Family& family : torch_models::families()) check_family(family, 2, config_of(0, 3));
}

TEST_CASE("modules train in a device's memory with state in host memory") {
  zero::Config config = config_of(1);
  config.bf16_enabled = true;
  config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
  for (const Family& family : torch_models::families()) check_family(family, 2, config, 1);
}
