// The conformance suite over the ranks of a job: mpi_conformance TRANSPORT. Buffers are in private
// memory, in shared arenas, and in shared arenas on some ranks only.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "comm/world.h"
#include "tests/comm/conformance.h"
#include "tests/comm/wire/exchange_conformance.h"
#include "zero/base/arena.h"
#include "zero/base/error.h"

namespace {

using namespace zero;
using namespace zero::comm;
using namespace zero::comm::testing;

void run_all(World& world) {
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

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<World> world;
  try {
    WorldOptions options;
    options.time_limit = std::chrono::seconds(60);
    if (argc > 1) options.transport = argv[1];
    world = create_world(argc, argv, options);
    // If each rank has its own node, hierarchical and mpi are the same.
    const bool apart = world->topology().node_count == world->topology().size;
    if (options.transport == "hierarchical" && apart) options.transport = "mpi";
    if (world->communicator().transport() != options.transport && options.transport != "auto")
      throw TopologyError("another transport than asked for");
    run_all(*world);
    return 0;
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    const int code = ours != nullptr ? ours->exit_code() : 70;
    if (!world || world->fail(error.what(), code)) std::fprintf(stderr, "%s\n", error.what());
    if (world) world->abort(code);
    return code;
  }
}
