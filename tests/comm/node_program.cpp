// Steps like those of stage 3, over the nodes of the job: node_program TRANSPORT REDUCE_GROUP COUNT
// STEPS. Every step gathers COUNT elements per rank twice and reduces them once. Prints, from rank
// 0 and as "name value" lines: the transport, the node of each rank, a hash of all results, the
// bytes that all ranks moved between and inside nodes, and the milliseconds per step (median).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "comm/world.h"
#include "zero/base/arena.h"
#include "zero/base/error.h"

namespace {

using namespace zero;
using namespace zero::comm;

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 31);
}

// Fills with values whose sums depend on the order of addition.
void fill(bf16* data, std::int64_t count, std::uint64_t seed) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t random = mixed(seed ^ static_cast<std::uint64_t>(i));
    const auto exponent = static_cast<std::uint32_t>(118 + random % 12);
    data[i].bits = static_cast<std::uint16_t>((random >> 8 & 0x807fu) | exponent << 7);
  }
}

std::uint64_t hashed(const bf16* data, std::int64_t count, std::uint64_t hash) {
  for (std::int64_t i = 0; i < count; ++i) hash = (hash ^ data[i].bits) * 0x100000001b3u;
  return hash;
}

std::int64_t total(const Traffic::Counters& counters) {
  return std::accumulate(counters.begin(), counters.end(), std::int64_t{0});
}

void run(World& world, int reduce_group, std::int64_t count, int steps) {
  Communicator& comm = world.communicator();
  const int n = comm.size(), rank = comm.rank();
  comm.set_reduce_groups(reduce_group);
  Arena arena(2 * Arena::rounded(n * count * 2), Arena::Sharing::node, "nodes");
  comm.share(arena);
  auto* parameters = static_cast<bf16*>(arena.take(n * count * 2));
  auto* gradients = static_cast<bf16*>(arena.take(n * count * 2));
  fill(parameters + rank * count, count, mixed(static_cast<std::uint64_t>(rank)));
  std::uint64_t hash = 0xcbf29ce484222325u;
  std::vector<double> milliseconds;
  const Traffic before = comm.traffic();
  for (int step = 0; step < steps; ++step) {
    fill(gradients, n * count, mixed(static_cast<std::uint64_t>(step * n + rank) + 1000));
    comm.barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (int pass = 0; pass < 2; ++pass)
      comm.all_gather(parameters + rank * count, parameters, count, DType::bf16);
    comm.reduce_scatter(gradients, gradients + rank * count, count, DType::bf16);
    comm.barrier();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - begin;
    milliseconds.push_back(spent.count());
    hash = hashed(parameters, n * count, hash);
    hash = hashed(gradients + rank * count, count, hash);
    std::copy_n(gradients + rank * count, count, parameters + rank * count);
  }
  Traffic traffic = comm.traffic();
  traffic -= before;
  std::vector<std::int64_t> all(static_cast<std::size_t>(n) * 3);
  const std::int64_t own[3] = {static_cast<std::int64_t>(hash), total(traffic.bytes_between_nodes),
                               total(traffic.bytes_inside_node)};
  comm.all_gather(own, all.data(), 3, DType::int64);
  comm.withdraw(arena);
  if (rank != 0) return;
  std::uint64_t everything = 0;
  std::int64_t between = 0, inside = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(n); ++r) {
    everything = mixed(everything ^ static_cast<std::uint64_t>(all[3 * r]));
    between += all[3 * r + 1];
    inside += all[3 * r + 2];
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf("transport %s\nnodes ", std::string(comm.transport()).c_str());
  for (int r = 0; r < n; ++r)
    std::printf("%s%d", r == 0 ? "" : ",", world.topology().node_of[static_cast<std::size_t>(r)]);
  std::printf("\nhash %016llx\nbetween %lld\ninside %lld\nmilliseconds %.3f\n",
              static_cast<unsigned long long>(everything), static_cast<long long>(between),
              static_cast<long long>(inside), milliseconds[milliseconds.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<World> world;
  try {
    if (argc < 5) throw UsageError("node_program TRANSPORT REDUCE_GROUP COUNT STEPS");
    WorldOptions options;
    options.time_limit = std::chrono::seconds(60);
    options.transport = argv[1];
    const int reduce_group = std::atoi(argv[2]), steps = std::atoi(argv[4]);
    const std::int64_t count = std::atoll(argv[3]);
    world = create_world(argc, argv, options);
    run(*world, reduce_group, count, steps);
    return 0;
  } catch (const Error& error) {
    if (!world || world->fail(error.what(), error.exit_code()))
      std::fprintf(stderr, "zero: %s\n", error.what());
    if (world) world->abort(error.exit_code());
    return error.exit_code();
  }
}
