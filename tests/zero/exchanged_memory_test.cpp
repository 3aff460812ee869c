// Engines over the NCCL transport, with replacements of NCCL and of the device: exchanged buffers
// are in the right memory, and the plan has every byte of it.
#include <doctest/doctest.h>

#include "comm/nccl/connect.h"
#include "tests/comm/fake_gpu.h"
#include "tests/comm/fake_nccl.h"
#include "tests/support/mock_ranks.h"
#include "tests/support/refusal.h"

namespace {

using zero::comm::testing::FakeNccl;

constexpr int ranks = 2, steps = 4;
const mock::Training training{{}, steps};

struct Nccl {
  std::vector<std::shared_ptr<FakeNccl>> apis = std::vector<std::shared_ptr<FakeNccl>>(ranks);

  mock::Connect connect() {
    return [this](zero::comm::World& world) {
      const int rank = world.topology().rank;
      auto& api = apis[static_cast<std::size_t>(rank)];
      api = std::make_shared<FakeNccl>(world.communicator());
      zero::comm::testing::FakeGpu gpu(rank);
      zero::comm::nccl::ConnectOptions options;
      options.load = [&api] { return api; };
      options.abort_job = false;
      return zero::comm::nccl::connect(world.communicator(), gpu, options);
    };
  }
};

zero::Config config_of(int stage) {
  zero::Config config = toy::config(stage, {});
  config.zero_core.deterministic = true;
  return config;
}

// Trains on mock devices; `look` is called with the runtime while an engine lives.
toy::Trace train(const zero::Config& config, Nccl& nccl,
                 const std::function<void(zero::Runtime&, FakeNccl&)>& look) {
  toy::Trace trace;
  mock::run_ranks(
      ranks, mock::Order::random, 3,
      [&](zero::Runtime& runtime) {
        FakeNccl& api = *nccl.apis[static_cast<std::size_t>(runtime.rank())];
        toy::Trace own;
        {
          zero::Engine engine(runtime, toy::describe(training.dims), config);
          engine.initialize(toy::fill);
          own = mock::train_until(runtime, engine, steps, training.dims);
          look(runtime, api);
        }
        for (const zero::Tier tier : {zero::Tier::memory, zero::Tier::host}) {
          CHECK(runtime.core().ledger().total(tier).planned == 0);
          CHECK(runtime.core().ledger().total(tier).current == 0);
        }
        CHECK(api.registered == 0);
        if (runtime.is_root()) trace = std::move(own);
      },
      nccl.connect());
  return trace;
}

}  // namespace

TEST_CASE("buffers that ranks exchange are registered with NCCL, and the plan has every byte") {
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    Nccl nccl;
    const toy::Trace trace =
        train(config_of(stage), nccl, [](zero::Runtime& runtime, FakeNccl& api) {
          CHECK(api.registered > 0);
          const zero::MemoryAccount total = runtime.core().ledger().total();
          CHECK(total.planned == total.current);
          CHECK(total.current == static_cast<mock::Device&>(runtime.core().device()).reserved());
        });
    const toy::Trace expected = training.on_host(ranks, config_of(stage));
    CHECK(trace.losses == expected.losses);
    CHECK(trace.digest == expected.digest);
    for (const auto& api : nccl.apis) CHECK(api->calls == "register deregister destroy destroy ");
  }
}

TEST_CASE("payloads on devices cannot be verified, and the error names the key") {
  zero::Config config = config_of(1);
  config.zero_core.verify_comm = true;
  Nccl nccl;
  CHECK(zero::tests::contains(zero::tests::refusal<zero::ConfigError>(
                                  [&] { train(config, nccl, [](zero::Runtime&, FakeNccl&) {}); }),
                              "zero_core.verify_comm"));
}
