// Orders of scopes on devices whose streams run in any order.
#include <doctest/doctest.h>

#include "tests/support/layer_chain.h"
#include "tests/support/mock_ranks.h"
#include "tests/support/temporary_directory.h"

namespace {

using Calls = std::vector<std::string>;

struct Outcome {
  std::vector<double> losses;
  std::uint64_t digest = 0;
  bool operator==(const Outcome&) const = default;
};

// Trains with layers that are repeated and that some ranks leave out, in a learned order; some
// steps have other lengths than configured.
Outcome train(zero::Runtime& runtime, const zero::Config& config) {
  chain::Declaration declared;
  declared.optional = declared.learns = true;
  zero::Engine engine(runtime, chain::describe(declared), config);
  engine.initialize(chain::fill);
  const mock::Launcher launch(runtime);
  Outcome outcome;
  for (const int count : {2, 1, 3}) {
    std::vector<std::unique_ptr<chain::Pass>> passes;  // outlive the queued work
    for (int i = 0; i < count; ++i) {
      zero::MicroStep micro = engine.begin_micro_step(count == 2 && i == 1);
      passes.push_back(std::make_unique<chain::Pass>(engine, launch, true));
      const bool all = (i + runtime.rank()) % 2 == 0;
      micro.loss(passes.back()->forward(all ? Calls{"c", "a", "c", "b", "d"} : Calls{"c", "d"},
                                        0.1f * static_cast<float>(1 + runtime.rank() + i)));
      passes.back()->backward();
    }
    outcome.losses.push_back(engine.step().wait().loss);
  }
  outcome.digest = engine.digest();
  return outcome;
}

}  // namespace

TEST_CASE("a device takes any order of units with the bits of the CPU") {
  for (const int ranks : {1, 2, 3}) {
    std::optional<Outcome> first;
    for (const char* offload : {"none", "cpu", "nvme"})
      for (const int stage : {0, 2, 3}) {
        const bool offloads = std::string(offload) != "none";
        if (stage == 0 && offloads) continue;
        const zero::tests::TemporaryDirectory directory;
        zero::Config config = toy::config(stage, {}, 2);
        config.zero_core.gradient_sync = zero::GradientSync::each;
        zero::ZeroOptions& options = config.zero_optimization;
        if (offloads) {
          options.offload_optimizer.device =
              std::string(offload) == "cpu" ? zero::OffloadDevice::cpu : zero::OffloadDevice::nvme;
          options.offload_optimizer.nvme_path = options.offload_param.nvme_path =
              directory.path().string();
          if (stage == 3) options.offload_param.device = options.offload_optimizer.device;
        }
        const auto check = [&](zero::Runtime& runtime) {
          const Outcome own = train(runtime, config);
          if (!runtime.is_root()) return;
          if (!first) first = own;
          CHECK(own.losses == first->losses);
          CHECK(own.digest == first->digest);
        };
        CAPTURE(ranks);
        CAPTURE(stage);
        CAPTURE(offload);
        zero::testing::run_ranks(ranks, check);
        for (const mock::Order order :
             {mock::Order::compute_first, mock::Order::communication_first, mock::Order::one_last,
              mock::Order::random})
          mock::run_ranks(ranks, order, 5, check);
      }
  }
}
