// Offload under hybrid strategies: state, gradients and parameters of a shard in a file, or in host
// memory on GPU ranks, change no bit.
#include <doctest/doctest.h>

#include "tests/offload/offload_support.h"
#include "tests/support/hybrid_rows.h"
#include "tests/support/mock_ranks.h"

using namespace offload_support;
using zero::GradientSync;

namespace {

constexpr int ranks = 4, group = 2, steps = 3;
const mock::Training training{dims(), steps};

zero::Config base_of(int accumulation, bool bf16, GradientSync sync) {
  zero::Config c = config(1, accumulation, bf16);
  c.zero_core.gradient_sync = sync;
  return c;
}

}  // namespace

TEST_CASE("hybrid strategies with state and parameters in a file: the bits of stage 1") {
  const DiskDirectory directory;
  for (const auto& [accumulation, sync] :
       {std::pair{1, GradientSync::automatic}, {3, GradientSync::each}, {3, GradientSync::last}})
    for (const bool bf16 : {false, true}) {
      const zero::Config base = base_of(accumulation, bf16, sync);
      const toy::Trace expected = run(ranks, hybrid::with_sums_of(base, group), steps);
      for (const hybrid::Row& row : hybrid::rows)
        for (const double ratio : {0.4, 1.}) {
          CAPTURE(std::string(row.name));
          CAPTURE(accumulation);
          CAPTURE(static_cast<int>(sync));
          CAPTURE(ratio);
          zero::Config c = hybrid::in_groups(with_states(base, directory.path()), row, group);
          c.zero_optimization.offload_optimizer.ratio = ratio;
          CHECK(run(ranks, c, steps, "worker") == expected);
          if (row.over_all_ranks) continue;
          CHECK(run(ranks, with_parameters(c, directory.path()), steps, "worker") == expected);
        }
    }
}

TEST_CASE("gradient_sync inner keeps gradients in memory, with the bits of no offload") {
  const DiskDirectory directory;
  const zero::Config base = base_of(3, true, GradientSync::inner);
  for (const hybrid::Row& row : hybrid::rows) {
    CAPTURE(std::string(row.name));
    const zero::Config c = hybrid::in_groups(base, row, group);
    CHECK(run(ranks, with_states(c, directory.path()), steps, "worker") == run(ranks, c, steps));
  }
}

TEST_CASE("GPU ranks with offload under hybrid strategies: the bits of CPU ranks at stage 1") {
  const DiskDirectory directory;
  for (const auto& [accumulation, bf16] : {std::pair{1, false}, {1, true}, {2, true}}) {
    const zero::Config base = base_of(accumulation, bf16, GradientSync::each);
    const toy::Trace expected = training.on_host(ranks, hybrid::with_sums_of(base, group));
    for (const hybrid::Row& row : hybrid::rows)
      for (const auto device :
           {zero::OffloadDevice::none, zero::OffloadDevice::cpu, zero::OffloadDevice::nvme}) {
        CAPTURE(std::string(row.name));
        CAPTURE(accumulation);
        CAPTURE(static_cast<int>(device));
        zero::Config c = hybrid::in_groups(base, row, group);
        if (device != zero::OffloadDevice::none) c = with_states(c, directory.path());
        c.zero_optimization.offload_optimizer.device = device;
        training.compare(
            ranks, expected, c,
            {mock::Order::compute_first, mock::Order::communication_first, mock::Order::random});
        if (device == zero::OffloadDevice::cpu) {
          zero::Config stepped = c;
          stepped.zero_core.offload_step = "device";
          training.compare(ranks, expected, stepped, {mock::Order::random});
        }
        if (device == zero::OffloadDevice::none || row.over_all_ranks) continue;
        c = with_parameters(c, directory.path());
        c.zero_optimization.offload_param.device = device;
        training.compare(ranks, expected, c, {mock::Order::communication_first});
      }
  }
}

TEST_CASE("new parameters that are sent between groups must be in memory") {
  const DiskDirectory directory;
  zero::Config c = hybrid::in_groups(config(3), hybrid::rows[2], group);
  c = with_parameters(with_states(c, directory.path()), directory.path());
  CHECK_THROWS_WITH_AS(run(ranks, c),
                       doctest::Contains("zero_optimization.offload_param with "
                                         "zero_core.optimizer_over_all_ranks"),
                       zero::ConfigError);
}
