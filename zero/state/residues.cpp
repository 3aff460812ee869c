#include "zero/state/residues.h"

#include "comm/wire/layout.h"

namespace zero::detail {

namespace {

bool in_hops(const StatePolicy& policy) {
  return policy.first_sum_ranks() > 0;
}

}  // namespace

Residues::Residues(const Layout& layout, const StatePolicy& policy)
    : layout_(layout), policy_(policy), exchanges_(layout) {
  const WireFormats& wire = policy.wire;
  if (!wire.feedback) return;
  const RankGrid& grid = layout.grid;
  for (const SegmentId& id : layout.segments()) {
    const Segment& segment = layout.segment(id);
    if (!segment.trainable) continue;
    const std::int64_t shard = policy.shard(segment).count();
    auto& exchanges = exchanges_[id];
    add(exchanges[inside], wire.reduce_inside, grid.shard_ranks, shard);
    if (in_hops(policy))
      add(exchanges[second_hop], wire.reduce, grid.shard_ranks / policy.first_sum_ranks(), shard);
    if (grid.replicas() > 1)
      add(exchanges[over_groups], wire.reduce, grid.replicas(), segment.slice);
  }
}

void Residues::add(Exchange& exchange, const comm::wire::Codec& codec, std::int64_t slices,
                   std::int64_t stride) {
  if (codec.format == comm::wire::Format::none || codec.format == comm::wire::Format::bf16) return;
  exchange = {bytes_, slices * stride, stride};
  bytes_ += comm::wire::residue_bytes(codec, exchange.elements);
}

void Residues::request(MemoryRequests& requests) {
  if (!exist()) return;
  requests.add(MemoryCategory::communication, bytes_, kept_);
  if (policy_.residues_await_decision)
    requests.add(MemoryCategory::communication, bytes_, renewed_);
}

std::optional<comm::wire::SliceFeedback> Residues::feedback(const SegmentId& id, int exchange,
                                                            const Use& use) const {
  const auto& [offset, elements, stride] = exchanges_[id][exchange];
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
  const std::int64_t stride = exchanges_[id][exchange].stride;
  if (exchanges_[id][exchange].elements == 0) return slices;
  const RankGrid& grid = layout_.grid;
  const int first = policy_.first_sum_ranks(), groups = first > 0 ? grid.shard_ranks / first : 1;
  const int number = grid.in_group(rank);
  // Slice `at` of the residue is slice or shard `of` of the segment.
  const auto add = [&](std::int64_t at, std::int64_t of) {
    slices.push_back({{of * stride, (of + 1) * stride}, at * stride});
  };
  // The first of two hops that are one reduction sends in the order of
  // comm::wire::reduce_scatter().
  const bool by_hop = policy_.wire.reduce_hop > 0 && policy_.inner_ranks == 0;
  if (exchange == inside)
    for (int to = 0; to < grid.shard_ranks; ++to)
      add(by_hop ? to % first * groups + to / first : to, to);
  if (exchange == second_hop)
    for (int group = 0; group < groups; ++group) add(group, group * first + number % first);
  if (exchange == over_groups)
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

std::string Residues::describe() const {
  const WireFormats& wire = policy_.wire;
  const auto text = [](const comm::wire::Codec& codec) {
    return std::string(name_of(codec.format)) + " in blocks of " + std::to_string(codec.block);
  };
  const std::string hops = in_hops(policy_)
                               ? " in two hops, with " + text(wire.reduce_inside) + " inside " +
                                     std::to_string(policy_.first_sum_ranks()) + " of them"
                               : "";
  // The same hops in one reduction keep their residues in another order.
  const std::string apart =
      policy_.inner_ranks > 0 && wire.reduce_hop > 0 ? ", the second once per step" : "";
  return text(wire.reduce) + " over " + std::to_string(policy_.grid.ranks) +
         " ranks in groups of " + std::to_string(policy_.grid.shard_ranks) + hops + apart;
}

}  // namespace zero::detail
