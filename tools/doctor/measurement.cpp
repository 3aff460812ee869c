#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "comm/world.h"
#include "tools/doctor/links.h"
#include "zero/base/text.h"

namespace zero::doctor {
namespace {

using comm::Communicator;

constexpr std::int64_t large_bytes = std::int64_t{8} << 20;
constexpr int round_trips = 50, large_rounds = 4, most_hosts_each_with_each = 8;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double steady() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Both ranks of the pair call it; rank 0 of it has the result.
Link measure(Communicator& pair) {
  Link link;
  link.transport = pair.transport();
  double shortest = 1e9;
  for (int i = 0; i < round_trips; ++i) {
    std::array<double, 1> there{}, back{};
    const double begin = steady(), sent = now();
    pair.broadcast(there.data(), 1, DType::int64, 0);
    back[0] = now();
    pair.broadcast(back.data(), 1, DType::int64, 1);
    const double trip = steady() - begin;
    if (trip >= shortest) continue;
    shortest = trip;
    link.clock_offset_seconds = back[0] - (sent + trip / 2);
  }
  link.latency_seconds = shortest / 2;
  std::vector<std::byte> bytes(large_bytes);
  const std::int64_t words = large_bytes / size_of(DType::int64);
  for (int i = 0; i < large_rounds; ++i) {
    pair.barrier();
    const double begin = steady();
    pair.broadcast(bytes.data(), words, DType::int64, 0);
    pair.broadcast(bytes.data(), words, DType::int64, 1);
    const double rate = 2 * static_cast<double>(large_bytes) / (steady() - begin);
    link.bytes_per_second = std::max(link.bytes_per_second, rate);
  }
  return link;
}

std::vector<std::pair<int, int>> pairs_of(const comm::Topology& topology) {
  std::map<int, std::vector<int>> ranks_of_node;
  for (int rank = 0; rank < topology.size; ++rank)
    ranks_of_node[topology.node_of[static_cast<std::size_t>(rank)]].push_back(rank);
  std::vector<std::pair<int, int>> pairs;
  std::vector<int> leaders;
  for (const auto& [node, ranks] : ranks_of_node) {
    leaders.push_back(ranks.front());
    if (ranks.size() > 1) pairs.emplace_back(ranks[0], ranks[1]);
  }
  const std::size_t hosts = leaders.size();
  for (std::size_t a = 0; a < hosts; ++a)
    for (std::size_t b = a + 1; b < hosts; ++b)
      if (hosts <= most_hosts_each_with_each || b == a + 1)
        pairs.emplace_back(leaders[a], leaders[b]);
  return pairs;
}

// Every rank's text, on all ranks.
std::vector<std::string> gather_texts(Communicator& all, const std::string& own) {
  constexpr std::size_t width = 512;
  std::vector<char> texts(width * static_cast<std::size_t>(all.size()));
  const auto at = width * static_cast<std::size_t>(all.rank());
  std::memcpy(&texts[at], own.data(), std::min(own.size(), width - 1));
  all.all_gather(&texts[at], texts.data(), width / 8, DType::int64);
  std::vector<std::string> result;
  for (int rank = 0; rank < all.size(); ++rank)
    result.emplace_back(&texts[width * static_cast<std::size_t>(rank)]);
  return result;
}

}  // namespace

Links measure_links(comm::World& world) {
  Communicator& all = world.communicator();
  Links links;
  links.transport = all.transport();
  links.hosts = gather_texts(all, host_name());
  for (const auto& [first, second] : pairs_of(world.topology())) {
    const bool within = all.rank() == first || all.rank() == second;
    const std::unique_ptr<Communicator> pair = all.split(within ? 0 : 1, all.rank());
    std::string own;
    if (within) {
      Links one;
      one.links.push_back(measure(*pair));
      one.links[0].first = first;
      one.links[0].second = second;
      own = to_json(one);
    }
    // One pair at a time, so that no other one disturbs it.
    const Links one = links_of(gather_texts(all, own)[static_cast<std::size_t>(first)]);
    links.links.push_back(one.links.at(0));
  }
  return links;
}

}  // namespace zero::doctor
