#include "zero/state/residues.h"

namespace zero::detail {

namespace {

bool in_hops(const StatePolicy& policy) {
  return policy.first_sum_ranks() > 0;
}

}  // namespace

Residues::Residues(const Layout& layout, const StatePolicy& policy)
    : policy_(policy), exchanges_(layout) {
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

std::string Residues::describe() const {
  const WireFormats& wire = policy_.wire;
  const auto text = [](const comm::wire::Codec& codec) {
    return std::string(name_of(codec.format)) + " in blocks of " + std::to_string(codec.block);
  };
  const std::string hops = in_hops(policy_)
                               ? " in two hops, with " + text(wire.reduce_inside) + " inside " +
                                     std::to_string(policy_.first_sum_ranks()) + " of them"
                               : "";
  return text(wire.reduce) + " over " + std::to_string(policy_.grid.ranks) +
         " ranks in groups of " + std::to_string(policy_.grid.shard_ranks) + hops;
}

}  // namespace zero::detail
