#include "zero/state/residues.h"

#include <algorithm>

#include "comm/wire/layout.h"

namespace zero::detail {

Residues::Residues(const Routes& routes, const StatePolicy& policy)
    : layout_(routes.layout()), policy_(policy), exchanges_(layout_) {
  if (!policy.wire.feedback) return;
  for (const SegmentId& id : layout_.segments()) {
    if (!layout_.segment(id).trainable) continue;
    auto& exchanges = exchanges_[id];
    for (const Route& route : routes.sums(id)) {
      const bool in_hops = route.legs.size() > 1 || route.exchange == exchange_between;
      int parts = route.parts();
      for (std::size_t leg = 0; leg < route.legs.size(); ++leg) {
        const comm::wire::Format format = route.legs[leg].codec.format;
        Exchange& exchange = exchanges[route.exchange + leg];
        if (format != comm::wire::Format::none && format != comm::wire::Format::bf16)
          exchange.elements =
              std::max(exchange.elements, route.residue_begin + parts * route.count);
        exchange.stride = route.count;
        exchange.groups = in_hops ? route.legs.back().ranks : 1;
        parts /= route.legs[leg].ranks;
      }
    }
    for (int exchange = 0; exchange < exchange_count; ++exchange) {
      exchanges[exchange].offset = bytes_;
      if (exchanges[exchange].elements > 0)
        bytes_ += comm::wire::residue_bytes(codec(exchange), exchanges[exchange].elements);
    }
  }
}

void Residues::request(MemoryRequests& requests) {
  if (!exist()) return;
  requests.add(MemoryCategory::communication, bytes_, kept_);
  if (policy_.residues_await_decision)
    requests.add(MemoryCategory::communication, bytes_, renewed_);
}

std::optional<comm::wire::SliceFeedback> Residues::feedback(const SegmentId& id, int exchange,
                                                            const Use& use) const {
  const auto& [offset, elements, stride, groups] = exchanges_[id][exchange];
  if (elements == 0) return {};
  std::byte* after = renewed_ != nullptr ? renewed_ : kept_;
  std::byte* before = use.first ? kept_ : after;
  return comm::wire::SliceFeedback{.before = before + offset,
                                   .after = after + offset,
                                   .elements = elements,
                                   .stride = stride,
                                   .beta = policy_.wire.feedback->beta,
                                   .reset = use.resets};
}

std::vector<Residues::Slice> Residues::slices(const SegmentId& id, int exchange, int rank) const {
  std::vector<Slice> slices;
  const auto& [offset, elements, stride, groups] = exchanges_[id][exchange];
  if (elements == 0) return slices;
  const RankGrid& grid = layout_.grid;
  const int number = grid.in_group(rank), first = grid.shard_ranks / groups;
  // Slice `at` of the residue is slice or shard `part` of the segment.
  const auto add = [&, width = stride](std::int64_t at, std::int64_t part) {
    slices.push_back({{part * width, (part + 1) * width}, at * width});
  };
  // The first of two hops in one reduction sends in the order of comm::wire::reduce_scatter().
  if (exchange == exchange_inside)
    for (int to = 0; to < grid.shard_ranks; ++to) add(to % first * groups + to / first, to);
  if (exchange == exchange_between)
    for (int group = 0; group < groups; ++group) add(group, group * first + number % first);
  if (exchange == exchange_over_groups)
    for (int group = 0; group < grid.replicas(); ++group)
      add(group, number * grid.replicas() + group);
  return slices;
}

Residues::Place Residues::place(const SegmentId& id, int exchange, std::int64_t element) const {
  const Exchange& own = exchanges_[id][exchange];
  const comm::wire::Codec codes = comm::wire::residue_codec(codec(exchange));
  return {own.offset + comm::wire::code_bytes(codes.format, element),
          own.offset + comm::wire::filled(comm::wire::code_bytes(codes.format, own.elements)) +
              element / codes.block * comm::wire::scale_bytes(codes.format)};
}

}  // namespace zero::detail
