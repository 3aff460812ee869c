// Which cpus the compute threads beside a device get: masks in, masks out; and that threads are
// bound to them.
#include "zero/base/cpu/affinity.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>

#include "zero/base/cpu/thread_pool.h"

using namespace zero;

namespace {

// Two nodes of four cores of two threads: cpus 0-3 and 8-11, 4-7 and 12-15.
std::vector<CpuList> cores_of(int node) {
  std::vector<CpuList> cores;
  for (int core = 4 * node; core < 4 * node + 4; ++core) cores.push_back({core, core + 8});
  return cores;
}

std::string chosen(const std::vector<RankPlace>& ranks, std::size_t own) {
  return text_of(cpus_beside_device(cores_of(ranks[own].numa_node), ranks, own));
}

const CpuList all = parse_cpus("0-15");

}  // namespace

TEST_CASE("lists of cpus are written as the kernel writes them") {
  for (const char* text : {"", "0", "0-3", "0-3,8-11", "1,3,5-6"})
    CHECK(text_of(parse_cpus(text)) == text);
  CHECK(parse_cpus("nonsense").empty());
  CHECK(parse_cpus("2-3\n") == CpuList{2, 3});
}

TEST_CASE("a rank alone gets its device's node, and no thread of a core without the other") {
  CHECK(chosen({{0, 0, all}}, 0) == "0-3,8-11");
  CHECK(chosen({{0, 1, all}}, 0) == "4-7,12-15");
}

TEST_CASE("unbound ranks of a node cut its cores evenly, each rank by its own device's node") {
  const std::vector<RankPlace> ranks{{0, 0, all}, {0, 1, all}, {0, 0, all}, {0, 1, all}};
  CHECK(chosen(ranks, 0) == "0-1,8-9");
  CHECK(chosen(ranks, 2) == "2-3,10-11");
  CHECK(chosen(ranks, 1) == "4-5,12-13");
  CHECK(chosen(ranks, 3) == "6-7,14-15");
  const std::vector<RankPlace> three{{0, 0, all}, {0, 0, all}, {0, 0, all}};
  CHECK(chosen(three, 0) == "0,8");
  CHECK(chosen(three, 1) == "1,9");
  CHECK(chosen(three, 2) == "2-3,10-11");
  // Another host's ranks have cores of their own.
  CHECK(chosen({{0, 0, all}, {1, 0, all}}, 0) == "0-3,8-11");
  CHECK(chosen({{0, 0, all}, {1, 0, all}}, 1) == "0-3,8-11");
}

TEST_CASE("what a launcher has bound is kept or made narrower, never widened") {
  const CpuList first = parse_cpus("0-1,8-9"), second = parse_cpus("2-3,10-11");
  const std::vector<RankPlace> apart{{0, 0, first}, {0, 0, second}};
  CHECK(chosen(apart, 0) == text_of(first));
  CHECK(chosen(apart, 1) == text_of(second));
  // Across both nodes: the device's part of it.
  CHECK(chosen({{0, 1, parse_cpus("3-4,11-12")}}, 0) == "4,12");
  // To the other node: none.
  CHECK(chosen({{0, 1, first}}, 0).empty());
  // Two ranks with one mask, as a job of a part of a node has.
  const std::vector<RankPlace> together{{0, 0, first}, {0, 0, first}};
  CHECK(chosen(together, 0) == "0,8");
  CHECK(chosen(together, 1) == "1,9");
}

TEST_CASE("more ranks than cores take threads of them, then share these evenly") {
  const std::vector<RankPlace> six(6, RankPlace{0, 0, all});
  CpuList taken;
  for (std::size_t own = 0; own < six.size(); ++own)
    for (const int cpu : cpus_beside_device(cores_of(0), six, own)) taken.push_back(cpu);
  std::sort(taken.begin(), taken.end());
  CHECK(text_of(taken) == "0-3,8-11");
  CHECK(std::adjacent_find(taken.begin(), taken.end()) == taken.end());
  const std::vector<RankPlace> five(5, RankPlace{0, 1, parse_cpus("4,6")});
  std::vector<std::string> choices;
  for (std::size_t own = 0; own < five.size(); ++own) choices.push_back(chosen(five, own));
  CHECK(choices == std::vector<std::string>{"4", "4", "4", "6", "6"});
}

TEST_CASE("where the machine does not say, nothing is chosen") {
  CHECK(cpus_beside_device({}, {{0, -1, all}}, 0).empty());
  CHECK(cores_of_numa_node(-1).empty());
  CHECK(cores_of_numa_node(4000).empty());
}

TEST_CASE("a pool's threads are bound, its caller is not, and a refusal is told") {
  const CpuList before = allowed_cpus();
  REQUIRE(!before.empty());
  ThreadPool pool(3);
  const CpuList one{before.back()};
  CHECK(pool.bind(one) == "");
  std::vector<CpuList> seen(3);
  pool.run([&](int index) { seen[static_cast<std::size_t>(index)] = allowed_cpus(); });
  CHECK(seen[0] == before);
  CHECK(seen[1] == one);
  CHECK(seen[2] == one);
  CHECK(pool.bind({CPU_SETSIZE - 1}).find("sched_setaffinity to cpus 1023: ") == 0);
  pool.run([&](int index) { seen[static_cast<std::size_t>(index)] = allowed_cpus(); });
  CHECK(seen[1] == one);
}
