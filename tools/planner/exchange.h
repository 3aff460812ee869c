// Computes time and bytes of the collectives of a route, in one hop or two: rings on GPUs, shared
// memory and messages on CPU nodes.
#pragma once

#include <cstdint>

#include "tools/planner/cluster.h"
#include "zero/plan/engine_plan.h"

namespace zero::planner {

// Cost for a rank, as a mean over the ranks of a group.
struct ExchangeCost {
  double inside_seconds = 0, between_seconds = 0;  // at once on GPUs, in sequence on CPUs
  double latency = 0;
  double inside_bytes = 0, between_bytes = 0;  // bytes sent
  double seconds = 0;

  ExchangeCost& operator+=(const ExchangeCost& other);
};

// The size of a group of the plan.
struct GroupPlace {
  int ranks = 1, nodes = 1;
};

class Exchanges {
 public:
  // `plan` is that of the cluster's first rank. Both must outlive this object.
  Exchanges(const detail::EnginePlan& plan, const Cluster& cluster);

  ExchangeCost of(const detail::Route& route) const;
  // The cost for each rank of a stage that sends or receives an array from a neighboring stage,
  // all ranks of both at once.
  ExchangeCost crossing(double bytes, int other_stage) const;
  // Seconds of an exchange of a few words among all ranks.
  double agreement() const;

 private:
  enum class Kind : std::uint8_t { gather, reduce, all_to_all };

  GroupPlace place_of(detail::GroupId group) const;
  // The cost of slices of `slice_bytes` from or to every rank of the group, in `pieces` calls.
  ExchangeCost hop(detail::GroupId group, Kind kind, double slice_bytes, double pieces) const;
  ExchangeCost gather(const detail::Route& route) const;
  ExchangeCost sum(const detail::Route& route) const;
  ExchangeCost ring(const GroupPlace& place, Kind kind, double slice_bytes, double pieces) const;
  ExchangeCost by_host(const GroupPlace& place, Kind kind, double slice_bytes, double pieces) const;

  const detail::EnginePlan& plan_;
  const Cluster& cluster_;
  EnumArray<detail::GroupId, GroupPlace, detail::group_id_count> places_;
};

}  // namespace zero::planner
