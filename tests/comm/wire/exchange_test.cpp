#include "comm/wire/exchange.h"

#include <doctest/doctest.h>

#include "tests/comm/thread_ranks.h"
#include "tests/comm/wire/exchange_conformance.h"
#include "zero/base/error.h"

namespace zero::comm::wire::testing {

TEST_CASE("wire exchanges: threads get the sums and the bytes of a local evaluation") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    CAPTURE(ranks);
    CHECK_NOTHROW(comm::testing::on_thread_ranks(
        ranks, [](World& world) { check_exchanges(world.communicator()); }));
  }
}

TEST_CASE("wire exchanges: a reduction without a format has one dtype") {
  const auto world = create_single_world({});
  bf16 summand;
  float sum = 0;
  CHECK_THROWS_AS(reduce_scatter({world->communicator(), Codec(Format::none)}, &summand,
                                 {&sum, DType::fp32}, {1, 1, DType::bf16}, {host_codec, nullptr}),
                  UsageError);
}

}  // namespace zero::comm::wire::testing
