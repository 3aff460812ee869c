#include "tools/doctor/links.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "comm/ping.h"
#include "comm/world.h"
#include "zero/base/text.h"

namespace zero::doctor {
namespace {

using comm::Communicator;
using Pair = std::pair<int, int>;  // of ranks

constexpr std::int64_t large_bytes = std::int64_t{8} << 20, small_bytes = std::int64_t{64} << 10;
constexpr int rate_rounds = 4;
constexpr double large_seconds = 0.25;  // time limit of a large message

// The measurement of a pair, in the form sent to all ranks.
struct Measured {
  double latency_seconds = 0, bytes_per_second = 0, clock_offset_seconds = 0;
  std::array<char, 40> transport{};
};
constexpr std::int64_t measured_words = sizeof(Measured) / 8;
static_assert(sizeof(Measured) == measured_words * 8);

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double steady() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Sends messages of `count` bytes there and back. Returns the best rate, one way.
double rate_of(Communicator& pair, std::vector<std::byte>& bytes, std::int64_t count) {
  const std::int64_t words = count / size_of(DType::int64);
  double best = 0;
  for (int i = 0; i < rate_rounds; ++i) {
    pair.barrier();
    const double begin = steady();
    pair.broadcast(bytes.data(), words, DType::int64, 0);
    pair.broadcast(bytes.data(), words, DType::int64, 1);
    best = std::max(best, 2 * static_cast<double>(count) / (steady() - begin));
  }
  return best;
}

// Both ranks of the pair must make this call; the result is valid on the pair's rank 0.
Measured measure(Communicator& pair) {
  Measured result;
  pair.transport().copy(result.transport.data(), result.transport.size() - 1);
  const comm::Ping ping = comm::ping(pair, now);
  result.latency_seconds = ping.latency_seconds;
  result.clock_offset_seconds = ping.clock_offset_seconds;
  std::vector<std::byte> bytes(large_bytes);
  // Choose the size by a first rate: on a link of 1 Mbit/s, 8 MiB would take minutes.
  std::array<double, 1> rate{rate_of(pair, bytes, small_bytes)};
  pair.broadcast(rate.data(), 1, DType::int64, 0);
  const auto most = static_cast<std::int64_t>(rate[0] * large_seconds);
  const std::int64_t large = std::clamp(most / 8 * 8, small_bytes, large_bytes);
  result.bytes_per_second = rate_of(pair, bytes, large);
  return result;
}

// Returns rounds of pairs in which no two pairs share a host: first the pairs inside of hosts, then
// every two hosts, by the circle method.
std::vector<std::vector<Pair>> rounds_of(const comm::Topology& topology) {
  std::map<int, std::vector<int>> ranks_of_node;
  for (int rank = 0; rank < topology.size; ++rank)
    ranks_of_node[topology.node_of[static_cast<std::size_t>(rank)]].push_back(rank);
  std::vector<std::vector<Pair>> rounds(1);
  std::vector<int> leaders;
  for (const auto& [node, ranks] : ranks_of_node) {
    leaders.push_back(ranks.front());
    if (ranks.size() > 1) rounds[0].emplace_back(ranks[0], ranks[1]);
  }
  constexpr int nobody = -1;
  if (leaders.size() % 2 == 1) leaders.push_back(nobody);
  for (std::size_t round = 1; round < leaders.size(); ++round) {
    std::vector<Pair>& pairs = rounds.emplace_back();
    for (std::size_t i = 0; i < leaders.size() / 2; ++i) {
      const auto [first, second] = std::minmax(leaders[i], leaders[leaders.size() - 1 - i]);
      if (first != nobody) pairs.emplace_back(first, second);
    }
    std::rotate(leaders.begin() + 1, leaders.end() - 1, leaders.end());
  }
  return rounds;
}

// Measures the pairs of a round. Collective; returns the links on all ranks.
std::vector<Link> measure_round(Communicator& all, const std::vector<Pair>& pairs) {
  const auto own = std::ranges::find_if(
      pairs, [&](const Pair& p) { return p.first == all.rank() || p.second == all.rank(); });
  const auto color = static_cast<int>(own - pairs.begin());
  const std::unique_ptr<Communicator> part = all.split(color, all.rank());
  Measured measured;
  if (own != pairs.end()) measured = measure(*part);
  std::vector<Measured> results(static_cast<std::size_t>(all.size()));
  all.all_gather(&measured, results.data(), measured_words, DType::int64);
  std::vector<Link> links;
  for (const auto& [first, second] : pairs) {
    const Measured& one = results[static_cast<std::size_t>(first)];
    links.push_back({first, second, one.transport.data(), one.latency_seconds, one.bytes_per_second,
                     one.clock_offset_seconds});
  }
  return links;
}

}  // namespace

std::vector<std::string> gather_texts(comm::World& world, const std::string& own) {
  Communicator& all = world.communicator();
  const auto ranks = static_cast<std::size_t>(all.size());
  const auto own_size = static_cast<std::int64_t>(own.size());
  std::vector<std::int64_t> sizes(ranks);
  all.all_gather(&own_size, sizes.data(), 1, DType::int64);
  const std::int64_t words = std::ranges::max(sizes) / 8 + 1;
  const std::size_t width = static_cast<std::size_t>(words) * 8;
  std::vector<char> padded(width), texts(width * ranks);
  own.copy(padded.data(), own.size());
  all.all_gather(padded.data(), texts.data(), words, DType::int64);
  std::vector<std::string> result;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    result.emplace_back(&texts[width * rank], static_cast<std::size_t>(sizes[rank]));
  return result;
}

Links measure_links(comm::World& world) {
  Links links;
  links.transport = world.communicator().transport();
  links.hosts = gather_texts(world, host_name());
  for (const std::vector<Pair>& pairs : rounds_of(world.topology()))
    if (!pairs.empty())
      for (Link& link : measure_round(world.communicator(), pairs))
        links.links.push_back(std::move(link));
  return links;
}

}  // namespace zero::doctor
