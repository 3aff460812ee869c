#include "tools/calibrate/link_rates.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "comm/world.h"
#include "zero/base/arena.h"

namespace zero::calibrate {
namespace {

using comm::Communicator;
using Clock = std::chrono::steady_clock;

constexpr int rounds = 8;
constexpr std::int64_t large_bytes = std::int64_t{16} << 20, small_bytes = 4096;

// Returns the seconds of a call on the slowest rank; the fastest round counts.
double time_of(Communicator& ranks, int calls, const std::function<void()>& call) {
  double best = std::numeric_limits<double>::infinity();
  call();
  for (int round = 0; round < rounds; ++round) {
    ranks.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    std::int64_t nanoseconds =
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
    std::vector<std::int64_t> all(static_cast<std::size_t>(ranks.size()));
    ranks.all_gather(&nanoseconds, all.data(), 1, DType::int64);
    best = std::min(best, 1e-9 * static_cast<double>(std::ranges::max(all)) / calls);
  }
  return best;
}

struct Times {
  double gather = 0, reduce = 0, small = 0;
};

Times times_of(Communicator& ranks) {
  const std::int64_t count = large_bytes / 4 / ranks.size();
  Arena arena(Arena::rounded(count * ranks.size() * 4), Arena::Sharing::node, "calibration");
  ranks.share(arena);
  auto* whole = static_cast<float*>(arena.take(count * ranks.size() * 4));
  float* own = whole + ranks.rank() * count;
  const std::int64_t few = small_bytes / 4 / ranks.size();
  const Times times{
      .gather = time_of(ranks, 4, [&] { ranks.all_gather(own, whole, count, DType::fp32); }),
      .reduce = time_of(ranks, 4, [&] { ranks.reduce_scatter(whole, own, count, DType::fp32); }),
      .small = time_of(ranks, 200, [&] {
        ranks.all_gather(whole + ranks.rank() * few, whole, few, DType::fp32);
      })};
  ranks.withdraw(arena);
  return times;
}

}  // namespace

LinkRates measure_exchanges(comm::World& world) {
  const comm::Topology& topology = world.topology();
  LinkRates rates;
  const auto whole = static_cast<double>(large_bytes);
  if (topology.node_count < topology.size) {
    const auto node = world.communicator().split(topology.node, topology.local_rank);
    const Times inside = times_of(*node);
    // Each rank reads the whole vector.
    rates.inside_rate = topology.local_size * whole / inside.gather;
    rates.inside_latency = inside.small / 2;
    rates.reduce_share = std::min(1.0, inside.gather / inside.reduce);
  }
  if (topology.node_count == 1) return rates;
  const Times all = times_of(world.communicator());
  // A node first receives all remote slices, then passes the whole to the ranks.
  const double inside = rates.inside_rate > 0 ? topology.local_size * whole / rates.inside_rate : 0;
  const double received = whole * (topology.node_count - 1) / topology.node_count;
  rates.between_rate = received / std::max(all.gather - inside, 1e-9);
  rates.between_latency =
      std::max(0.0, all.small - 2 * rates.inside_latency) / std::max(1, topology.node_count - 1);
  return rates;
}

}  // namespace zero::calibrate
