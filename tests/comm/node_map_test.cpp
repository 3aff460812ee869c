#include "comm/hierarchical/node_map.h"

#include <doctest/doctest.h>

#include <array>
#include <numeric>

#include "comm/reduce.h"
#include "comm/world.h"

namespace zero::comm::testing {
namespace {

NodeMap map_of(const std::vector<int>& node_of) {
  Group group;
  group.world_ranks.resize(node_of.size());
  std::iota(group.world_ranks.begin(), group.world_ranks.end(), 0);
  return {group, node_of};
}

}  // namespace

TEST_CASE("nodes are numbered by their lowest rank in the group") {
  const std::vector<int> node_of = {4, 4, 7, 4, 7};
  const NodeMap map({{4, 0, 2, 1}, 0}, node_of);  // world ranks, in the group's order
  CHECK(map.nodes() == 2);
  CHECK(map.members(0) == std::vector<int>{0, 2});
  CHECK(map.members(1) == std::vector<int>{1, 3});
  CHECK(map.local(2) == 1);
}

TEST_CASE("each rank has one partner per other node, which has it as a client") {
  for (const auto& node_of : std::vector<std::vector<int>>{
           {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {0, 1, 1, 1, 2}, {0}, {0, 0}}) {
    const NodeMap map = map_of(node_of);
    int clients = 0;
    for (int r = 0; r < map.size(); ++r)
      for (const int client : map.clients(r)) {
        ++clients;
        CHECK(map.node(client) != map.node(r));
        CHECK(map.partner(client, map.node(r)) == r);
      }
    CHECK(clients == map.size() * (map.nodes() - 1));
  }
}

TEST_CASE("a node sums the groups that lie on it, and only those") {
  const SumPlan block(map_of({0, 0, 1, 1}), 2);
  CHECK(block.items == std::vector<std::vector<SumPlan::Item>>{{{0, 1}}, {{2, 3}}});
  CHECK(block.ending == std::vector<std::uint8_t>{1, 1});
  const SumPlan round_robin(map_of({0, 1, 0, 1}), 2);
  CHECK(round_robin.items == std::vector<std::vector<SumPlan::Item>>{{{0}, {2}}, {{1}, {3}}});
  CHECK(round_robin.ending == std::vector<std::uint8_t>{0, 1, 0, 1});
  CHECK(round_robin.sources[1].node == 1);
  CHECK(round_robin.sources[2].item == 1);
  // Ranks 0-2 are on the first node; groups {0, 1}, {2, 3}, {4}.
  const SumPlan uneven(map_of({0, 0, 0, 1, 1}), 2);
  CHECK(uneven.items == std::vector<std::vector<SumPlan::Item>>{{{0, 1}, {2}}, {{3}, {4}}});
  CHECK(uneven.ending == std::vector<std::uint8_t>{1, 0, 1, 0});
  // Groups of two in groups of four, on nodes of three.
  ReduceGroups nested = 2;
  nested.sizes[1] = 4;
  const SumPlan levels(map_of({0, 0, 0, 1, 1, 1}), nested);
  CHECK(levels.items == std::vector<std::vector<SumPlan::Item>>{{{0, 1}, {2}}, {{3}, {4, 5}}});
  CHECK(levels.ending == std::vector<std::uint8_t>{1, 0, 2, 1});
  CHECK(SumPlan(map_of({0, 0, 0, 0, 1, 1, 1, 1}), nested).items ==
        std::vector<std::vector<SumPlan::Item>>{{{0, 1, 2, 3}}, {{4, 5, 6, 7}}});
}

TEST_CASE("sums of sums have the bits of the sum") {
  constexpr std::int64_t count = 1000;
  constexpr int ranks = 9;
  std::vector<std::vector<bf16>> values(ranks, std::vector<bf16>(count));
  std::uint32_t state = 1;
  for (auto& vector : values)
    for (bf16& value : vector) {
      state = state * 1664525u + 1013904223u;
      value.bits =
          static_cast<std::uint16_t>((state >> 16 & 0x807fu) | (118 + (state >> 9) % 12) << 7);
    }
  std::vector<ReduceGroups> groups = {1, 2, 3, 4, 5, {}};
  for (const auto& [inner, middle, outer] :
       {std::array{2, 4, 0}, std::array{1, 3, 6}, std::array{2, 4, 8}}) {
    groups.emplace_back(inner);
    groups.back().sizes[1] = middle, groups.back().sizes[2] = outer;
  }
  for (const auto& node_of : std::vector<std::vector<int>>{
           {0, 0, 0, 0, 0, 0, 1, 1, 1}, {0, 0, 0, 1, 1, 1, 2, 2, 2}, {0, 1, 0, 1, 2, 0, 0, 0, 0}})
    for (const ReduceGroups& group : groups) {
      std::vector<const void*> sources;
      for (const auto& vector : values) sources.push_back(vector.data());
      std::vector<bf16> expected(count), got(count);
      ordered_sum(sources, group, expected.data(), count, DType::bf16);

      const SumPlan plan(map_of(node_of), group);
      std::vector<std::vector<std::vector<bf16>>> sums(plan.items.size());
      for (std::size_t node = 0; node < plan.items.size(); ++node)
        for (const SumPlan::Item& item : plan.items[node]) {
          std::vector<const void*> parts;
          for (const int r : item) parts.push_back(values[static_cast<std::size_t>(r)].data());
          sums[node].emplace_back(count);
          ordered_sum(parts, group, sums[node].back().data(), count, DType::bf16);
        }
      sources.clear();
      for (const auto& [node, item] : plan.sources)
        sources.push_back(
            sums[static_cast<std::size_t>(node)][static_cast<std::size_t>(item)].data());
      ordered_sum(sources, plan.ending, got.data(), count, DType::bf16);
      for (std::size_t i = 0; i < count; ++i) CHECK(got[i].bits == expected[i].bits);
    }
}

}  // namespace zero::comm::testing

TEST_CASE("nodes are uniform if each has the same number of consecutive ranks") {
  const auto neighbors = [](std::vector<int> node_of, int nodes) {
    zero::comm::Topology topology;
    topology.size = static_cast<int>(node_of.size());
    topology.node_count = nodes;
    topology.node_of = std::move(node_of);
    return topology.neighbors_per_node();
  };
  CHECK(neighbors({0}, 1) == 1);
  CHECK(neighbors({0, 0, 0}, 1) == 3);
  CHECK(neighbors({0, 0, 1, 1, 2, 2}, 3) == 2);
  CHECK(neighbors({0, 1, 0, 1}, 2) == -1);
  CHECK(neighbors({0, 0, 0, 1}, 2) == -1);
  CHECK(neighbors({0, 0, 1, 1, 1}, 2) == -1);
}
