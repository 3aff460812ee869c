#include "tools/doctor/examination.h"

#include <optional>
#include <sstream>

#include "tools/doctor/report.h"
#include "tools/zero/machine.h"
#include "zero/runtime/runtime_core.h"

namespace zero::doctor {
namespace {

std::string text_of_cpus(const std::vector<int>& cpus) {
  std::string text;
  for (const int cpu : cpus) text += std::to_string(cpu) + " ";
  return text;
}

}  // namespace

std::vector<RankOnHost> ranks_on_host(Runtime& runtime) {
  comm::World& world = runtime.core().world();
  const comm::Topology& topology = world.topology();
  const std::vector<std::string> cpus = gather_texts(world, text_of_cpus(allowed_cpus()));
  std::vector<RankOnHost> ranks;
  for (int rank = 0; rank < topology.size; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (topology.node_of[at] != topology.node) continue;
    RankOnHost& added = ranks.emplace_back(RankOnHost{rank, {}});
    std::istringstream text(cpus[at]);
    for (int cpu = 0; text >> cpu;) added.cpus.push_back(cpu);
  }
  return ranks;
}

std::string examine(Runtime& runtime, const std::vector<std::string>& directories,
                    const std::string& program) {
  comm::World& world = runtime.core().world();
  const comm::Topology& topology = world.topology();
  const std::vector<RankOnHost> ranks = ranks_on_host(runtime);
  std::string own;
  if (topology.local_rank == 0) own = host_report(read_host(directories, ranks, program));
  std::vector<std::string> hosts = gather_texts(world, own);
  std::erase(hosts, "");
  std::optional<Links> links;
  if (topology.size > 1) links = measure_links(world);
  return report_of(hosts, links);
}

}  // namespace zero::doctor
