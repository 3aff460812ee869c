#include "tests/comm/world_conformance.h"

#include <algorithm>
#include <cstdio>

#include "tests/comm/conformance.h"
#include "tests/comm/wire/exchange_conformance.h"
#include "zero/base/arena.h"

namespace zero::comm::testing {

void check_world(World& world) {
  Communicator& comm = world.communicator();
  Suite suite{{0, 1, 2, 127, 128, 129, 1000, 5003, 100003}, Suite{}.dtypes};
  const Suite several_messages{{300007}, {DType::int64}};
  const std::int64_t largest = Arena::rounded(
      std::max(largest_buffer(suite, comm.size()), largest_buffer(several_messages, comm.size())));
  const auto run = [&](const char* where, bool use_shared) {
    Arena arena(2 * largest, Arena::Sharing::node, "conformance");
    Arena own(2 * largest, Arena::Sharing::private_memory, "conformance");
    comm.share(arena);
    Arena& used = use_shared ? arena : own;
    void* memory[2] = {used.take(largest), used.take(largest)};
    const int cases =
        run_suite(comm, suite, [&](int number, std::int64_t) { return memory[number]; });
    comm.withdraw(arena);
    if (comm.rank() == 0)
      std::printf("%d cases over %s, %s\n", cases, world.describe().c_str(), where);
  };
  run("private buffers", false);
  run("shared arenas", true);
  wire::testing::check_exchanges(comm);
  suite.counts = {129, 1000, 100003};
  run("shared arenas on even ranks", comm.rank() % 2 == 0);
  suite = several_messages;
  run("several messages", false);
  CallTerms terms = comm.terms();
  terms.verify = true;
  comm.set_terms(terms);
  run("shared arenas on even ranks, verified", comm.rank() % 2 == 0);
  check_splits(comm);
}

}  // namespace zero::comm::testing
