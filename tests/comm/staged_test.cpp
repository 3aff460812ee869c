#include <doctest/doctest.h>

#include "comm/staged_communicator.h"
#include "tests/comm/conformance.h"
#include "tests/comm/fake_gpu.h"
#include "tests/comm/thread_ranks.h"

using namespace zero::comm;
using namespace zero::comm::testing;

TEST_CASE("staged: device buffers over the threads' transport keep every promise") {
  for (const int ranks : {1, 2, 3})
    on_thread_ranks(ranks, [&](World& world) {
      FakeGpu gpu(world.topology().rank);
      StagedCommunicator communicator(world.communicator().split(0, world.topology().rank), gpu);
      Suite suite;
      suite.counts = {0, 1, 129, 1000};
      std::vector<std::byte> buffers[2];
      for (auto& buffer : buffers)
        buffer.resize(static_cast<std::size_t>(largest_buffer(suite, ranks)));
      CHECK(run_suite(communicator, suite,
                      [&](int number, std::int64_t) { return buffers[number].data(); }) > 100);
      if (ranks == 1) return;
      const auto part = communicator.split(world.topology().rank % 2, 0);
      CHECK(part->transport() == "staged");
    });
}

TEST_CASE("staged: ranks as threads get it for the buffers of a GPU") {
  on_thread_ranks(2, [](World& world) {
    FakeGpu gpu(0);
    CHECK(world.connect(gpu)->transport() == "staged");
  });
}
