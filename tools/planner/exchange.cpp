#include "tools/planner/exchange.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "comm/wire/layout.h"

namespace zero::planner {

using namespace detail;
using comm::wire::Format;

ExchangeCost& ExchangeCost::operator+=(const ExchangeCost& other) {
  inside_seconds += other.inside_seconds;
  between_seconds += other.between_seconds;
  latency += other.latency;
  inside_bytes += other.inside_bytes;
  between_bytes += other.between_bytes;
  seconds += other.seconds;
  return *this;
}

Exchanges::Exchanges(const EnginePlan& plan, const Cluster& cluster)
    : plan_(plan), cluster_(cluster) {
  for (int group = 0; group < group_id_count; ++group) {
    const auto id = static_cast<GroupId>(group);
    places_[id] = place_of(id);
  }
}

GroupPlace Exchanges::place_of(GroupId group) const {
  const std::optional<GroupSplit> own = split_of(plan_, group, 0);
  const int first = plan_.on.pipe.rank * cluster_.ranks;
  GroupPlace place{0, 0};
  std::set<int> nodes;
  for (int rank = 0; rank < cluster_.ranks; ++rank) {
    if (own && split_of(plan_, group, rank)->color != own->color) continue;
    ++place.ranks;
    nodes.insert((first + rank) / cluster_.per_node);
  }
  place.nodes = static_cast<int>(nodes.size());
  return place;
}

// Each rank sends to its neighbor; in an all-to-all, slices to all ranks. The ranks of a node use
// different adapters to other nodes.
ExchangeCost Exchanges::ring(const GroupPlace& place, Kind kind, double slice_bytes,
                             double pieces) const {
  const Device& device = cluster_.device;
  const double steps = place.ranks - 1, bytes = steps * slice_bytes;
  const auto seconds = [&](const Link& link, double links) {
    return (bytes / links + pieces * link.half_bytes) / link.bytes_per_second;
  };
  ExchangeCost cost;
  cost.inside_seconds = seconds(device.inside, 1);
  const double crossing = place.nodes > 1 ? place.nodes : 0;
  const double per_node = static_cast<double>(place.ranks) / place.nodes;
  if (crossing > 0) cost.between_seconds = seconds(device.between, per_node);
  cost.latency = pieces * (std::max(0.0, steps - crossing) * device.inside.latency +
                           std::min(steps, crossing) * device.between.latency);
  cost.between_bytes = bytes * crossing / place.ranks;
  if (crossing > 0 && kind == Kind::all_to_all) {
    cost.between_bytes = (place.ranks - per_node) * slice_bytes;
    cost.between_seconds =
        (cost.between_bytes + pieces * device.between.half_bytes) / device.between.bytes_per_second;
  }
  cost.inside_bytes = bytes - cost.between_bytes;
  cost.seconds = std::max(cost.inside_seconds, cost.between_seconds) + cost.latency;
  return cost;
}

// Ranks of a node exchange through shared memory, and each exchanges its part with its peers on
// other nodes, in an all-to-all slices with all ranks there. All groups that run at the same time
// share the node's memory and adapter.
ExchangeCost Exchanges::by_host(const GroupPlace& place, Kind kind, double slice_bytes,
                                double pieces) const {
  const Device& device = cluster_.device;
  const double on_node = cluster_.ranks_on_node();
  const double per_node = static_cast<double>(place.ranks) / place.nodes;
  const double whole = place.ranks * slice_bytes;
  const double rate =
      device.inside.bytes_per_second * (kind == Kind::gather ? 1 : device.reduce_share);
  ExchangeCost cost;
  cost.inside_seconds = on_node * whole / rate;
  cost.inside_bytes = (per_node - 1) * whole / place.ranks;
  if (place.nodes > 1 && kind == Kind::all_to_all) {
    cost.between_bytes = (place.ranks - per_node) * slice_bytes;
  } else if (place.nodes > 1) {
    cost.between_bytes = whole * (1 - per_node / place.ranks) / per_node;
    cost.inside_bytes = (per_node - 1) * whole / per_node;
  }
  cost.between_seconds = on_node * cost.between_bytes / device.between.bytes_per_second;
  cost.latency = pieces * ((per_node > 1 ? 2 : 0) * device.inside.latency +
                           (place.nodes - 1) * device.between.latency);
  cost.seconds = cost.inside_seconds + cost.between_seconds + cost.latency;
  return cost;
}

ExchangeCost Exchanges::hop(GroupId group, Kind kind, double slice_bytes, double pieces) const {
  const GroupPlace& place = places_[group];
  if (place.ranks < 2) return {};
  return cluster_.device.gpu ? ring(place, kind, slice_bytes, pieces)
                             : by_host(place, kind, slice_bytes, pieces);
}

// The outer hop is first, with one slice per rank; the inner hop gathers the received slices.
ExchangeCost Exchanges::gather(const Route& route) const {
  const auto pieces_of = [&](std::int64_t piece) {
    return std::ceil(static_cast<double>(route.count) / static_cast<double>(piece));
  };
  const double pieces = pieces_of(plan_.policy.gather_piece(route.parts()));
  const auto bytes = [&](const Leg& leg) {
    return static_cast<double>(comm::wire::encoded_bytes(leg.codec, route.count, route.from.dtype));
  };
  const Leg& inner = route.legs.front();
  if (route.legs.size() == 1) return hop(inner.group, Kind::gather, bytes(inner), pieces);
  const Leg& outer = route.legs.back();
  ExchangeCost cost = hop(outer.group, Kind::gather, bytes(outer), pieces);
  cost += hop(inner.group, Kind::gather, outer.ranks * bytes(inner), pieces);
  return cost;
}

ExchangeCost Exchanges::sum(const Route& route) const {
  const std::int64_t piece = plan_.policy.reduce_piece(route.parts());
  const double pieces =
      piece > 0 ? std::ceil(static_cast<double>(route.count) / static_cast<double>(piece)) : 1;
  ExchangeCost cost;
  double following = route.parts();
  for (const Leg& leg : route.legs) {
    following /= leg.ranks;
    const double bytes = following * static_cast<double>(comm::wire::encoded_bytes(
                                         leg.codec, route.count, route.wire));
    const bool sums = route.kind == Route::Kind::sum && leg.codec.format == Format::none;
    cost += hop(leg.group, sums ? Kind::reduce : Kind::all_to_all, bytes, pieces);
  }
  if (route.whole) {
    const auto bytes = static_cast<double>(route.count * size_of(route.whole->dtype));
    const GroupId group = route.legs.empty() ? GroupId::data : route.legs.front().group;
    cost += hop(group, Kind::gather, bytes, pieces);
  }
  return cost;
}

ExchangeCost Exchanges::of(const Route& route) const {
  if (route.kind == Route::Kind::copy) return {};
  return route.kind == Route::Kind::gather ? gather(route) : sum(route);
}

ExchangeCost Exchanges::crossing(double bytes, int other_stage) const {
  const Device& device = cluster_.device;
  const int own = plan_.on.pipe.rank;
  const bool inside = cluster_.node_of_stage(own) == cluster_.node_of_stage(other_stage);
  const Link& link = inside ? device.inside : device.between;
  // The ranks of a CPU node share its memory and its adapter.
  const int sharing = device.gpu ? 1
                      : inside   ? cluster_.ranks_on_node()
                                 : std::min(cluster_.ranks, cluster_.per_node);
  ExchangeCost cost;
  (inside ? cost.inside_bytes : cost.between_bytes) = bytes;
  (inside ? cost.inside_seconds : cost.between_seconds) =
      sharing * (bytes + link.half_bytes) / link.bytes_per_second;
  cost.latency = link.latency;
  cost.seconds = cost.inside_seconds + cost.between_seconds + cost.latency;
  return cost;
}

double Exchanges::agreement() const {
  const Device& device = cluster_.device;
  const double inside = std::ceil(std::log2(std::max(1, cluster_.ranks_on_node())));
  const double between = std::ceil(std::log2(std::max(1, cluster_.nodes())));
  return 2 * (inside * device.inside.latency + between * device.between.latency);
}

}  // namespace zero::planner
