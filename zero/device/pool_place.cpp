#include "zero/device/pool_place.h"

#include <cstdint>
#include <vector>

#include "zero/runtime_core.h"

namespace zero::detail {

namespace {

constexpr std::size_t mask_words = 16, bits = 64;

std::vector<std::int64_t> words_of(const RankPlace& place) {
  std::vector<std::uint64_t> mask(mask_words);
  for (const int cpu : place.allowed)
    mask[static_cast<std::size_t>(cpu) / bits] |= std::uint64_t{1}
                                                  << static_cast<std::size_t>(cpu) % bits;
  std::vector<std::int64_t> words{place.host, place.numa_node};
  for (const std::uint64_t word : mask) words.push_back(static_cast<std::int64_t>(word));
  return words;
}

RankPlace place_of(const std::int64_t* words) {
  RankPlace place{static_cast<int>(words[0]), static_cast<int>(words[1]), {}};
  for (std::size_t cpu = 0; cpu < mask_words * bits; ++cpu)
    if ((static_cast<std::uint64_t>(words[2 + cpu / bits]) >> cpu % bits & 1) != 0)
      place.allowed.push_back(static_cast<int>(cpu));
  return place;
}

}  // namespace

PoolPlace place_beside_device(RuntimeCore& runtime) {
  const RankPlace own{runtime.topology().node, runtime.device().numa_node(), allowed_cpus()};
  const std::vector<std::int64_t> words = words_of(own);
  const std::vector<std::int64_t> all =
      runtime.ranks().gather_words("start-up: the cpus of each rank", words);
  std::vector<RankPlace> places;
  for (std::size_t at = 0; at < all.size(); at += words.size())
    places.push_back(place_of(&all[at]));
  if (own.numa_node < 0) return {{}, "the machine does not say which NUMA node it belongs to"};
  const std::string node = "NUMA node " + std::to_string(own.numa_node);
  const std::vector<CpuList> cores = cores_of_numa_node(own.numa_node);
  if (cores.empty()) return {{}, "the machine does not say which cpus " + node + " has"};
  PoolPlace place;
  place.cpus = cpus_beside_device(cores, places, static_cast<std::size_t>(runtime.topology().rank));
  if (place.cpus.empty())
    place.why_not = "this process may use cpus " + text_of(own.allowed) + ", none of " + node +
                    "'s; the launcher has bound it away from its GPU";
  return place;
}

}  // namespace zero::detail
