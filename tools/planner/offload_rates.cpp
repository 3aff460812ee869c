#include "tools/planner/offload_rates.h"

#include "tools/planner/planned_row.h"
#include "zero/base/number_text.h"

namespace zero::planner {

std::string missing_rates_text(const Request& request) {
  const Cluster& cluster = request.cluster;
  if (!cluster.device.gpu) return "";
  const CoreOptions core = load_config(request, request.overrides).config.zero_core;
  if (core.offload_step != "both") return "";
  const auto missing = [](const char* key, bool is_set, double rate) {
    return is_set ? "" : std::string(" zero_core.") + key + " " + shortest_text(rate);
  };
  const std::string keys = missing("offload_host_rate", core.offload_host_rate.has_value(),
                                   cluster.device.host_memory_rate / cluster.ranks_on_node()) +
                           missing("offload_bus_rate", core.offload_bus_rate.has_value(),
                                   cluster.device.host.bytes_per_second);
  if (keys.empty()) return "";
  return "the updates of offload_step \"both\" are divided by default rates; for this device set" +
         keys;
}

}  // namespace zero::planner
