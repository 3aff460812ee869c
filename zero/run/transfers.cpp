#include "zero/run/transfers.h"

#include <algorithm>

#include "zero/run/device_range.h"

namespace zero::detail {

void Transfers::count_as_issued(Op op, int flat_unit, std::int64_t elements) {
  for (const auto value : {static_cast<std::uint64_t>(op), static_cast<std::uint64_t>(flat_unit),
                           static_cast<std::uint64_t>(elements)})
    issued_hash_ = (issued_hash_ ^ value) * 0x100000001b3u;
}

void Transfers::transfer(Ranks& ranks, int flat_unit, Work work) {
  if (!train_.collective()) {
    train_.runtime.communication().enqueue([work = std::move(work)](Stream stream) {
      maybe_delay();
      work(nullptr, stream);
    });
    return;
  }
  ranks.communicate(
      [this, flat_unit, work = std::move(work)](comm::Communicator& communicator, Stream stream) {
        exchange({communicator}, flat_unit, work, stream);
      });
}

void Transfers::transfer_in_hops(const HopRanks* hops, int flat_unit, Work work) {
  if (hops == nullptr) return transfer(train_.shard_group(), flat_unit, std::move(work));
  hops->first->communicate_with(
      *hops->second, [this, flat_unit, work = std::move(work)](
                         comm::Communicator& first, comm::Communicator& second, Stream stream) {
        exchange({first, &second}, flat_unit, work, stream);
      });
}

void Transfers::exchange(const Hops& hops, int flat_unit, const Work& work, Stream stream) {
  for (comm::Communicator* communicator : {&hops.first, hops.second}) {
    if (communicator == nullptr) continue;
    communicator->set_subject(train_.subject(flat_unit));
    communicator->use_staging(staging_.data(), staging_.size());
    traffic_ -= communicator->traffic();
  }
  work(&hops, stream);
  traffic_ += hops.first.traffic();
  if (hops.second != nullptr) traffic_ += hops.second->traffic();
}

void Transfers::queue_for_update(int flat_unit, Ranks::Transfer operation) {
  count_as_issued(Op::update, flat_unit, 0);
  transfer(train_.update_group(), flat_unit,
           [operation = std::move(operation)](const Hops* hops, Stream stream) {
             operation(hops->first, stream);
           });
}

void Transfers::reserve_staging() {
  const StatePolicy& policy = train_.policy();
  const WireFormats& wire = policy.wire;
  std::int64_t bytes = 0;
  const auto stage = [&](Ranks& ranks, const comm::wire::Codec& codec, int parts, Portion portion) {
    if (codec.format != comm::wire::Format::none) return;
    const std::int64_t piece = policy.reduce_piece(parts);
    ranks.exchange_on_device("start-up", [&](comm::Communicator& communicator, Stream) {
      for (const SegmentId& id : train_.layout().segments()) {
        const Segment& segment = train_.layout().segment(id);
        const std::int64_t part = segment.part(portion, train_.plan.grid, train_.rank()).count();
        if (segment.trainable)
          bytes = std::max(bytes, communicator.staging_bytes(std::min(piece, part),
                                                             train_.arrays.segment(id).wire));
      }
    });
  };
  const RankGrid& grid = train_.plan.grid;
  const HopRanks* const hops = train_.reduce_hops();
  if (const int inner = policy.inner_ranks; inner > 0) {
    stage(*hops->first, wire.reduce_inside, inner, Portion::slice);
    stage(*hops->second, wire.reduce, grid.ranks / inner, Portion::slice);
  } else if (hops != nullptr) {
    stage(*hops->first, wire.reduce_inside, grid.shard_ranks, Portion::shard);
    stage(*hops->second, wire.reduce, grid.shard_ranks, Portion::shard);
  } else {
    stage(train_.shard_group(), wire.reduce_inside, grid.shard_ranks, Portion::shard);
  }
  if (Ranks* replicas = train_.replicas())
    stage(*replicas, wire.reduce, grid.replicas(), Portion::slice);
  if (bytes == 0) return;
  staging_request_.add(MemoryCategory::communication, bytes, staging_memory_);
  staging_request_.plan(train_.runtime.ledger());
  staging_ = train_.runtime.device().reserve(bytes, Arena::Sharing::private_memory,
                                             "the staging of sums in rank order");
  staging_request_.take(staging_, train_.runtime.ledger());
}

void Transfers::issue(const Instruction& instruction) {
  const FlatUnit& flat = train_.layout().flat_unit(instruction.target);
  count_as_issued(instruction.op, instruction.target, flat.elements());
  const DeviceRange range(train_.runtime, instruction.op, flat.name);
  const bool reduces = instruction.op == Op::reduce || instruction.op == Op::reduce_late;
  if (reduces && train_.arrays.residues().exist())
    checkpoints_.precede_by_copies(train_.residue_group(), train_.runtime.communication());
  if (instruction.op == Op::gather)
    gather(instruction.target);
  else if (instruction.op == Op::regather)
    regather(instruction.target);
  else if (instruction.op == Op::accumulate)
    accumulate(instruction.target);
  else if (instruction.op == Op::reduce_late)
    reduce_late(instruction.target);
  else if (instruction.op == Op::spread)
    share_slices(instruction.target, ArrayKind::parameter);
  else
    reduce(instruction.target, train_.policy().accumulate_locally);
}

void Transfers::cast(const Typed& from, const Typed& to, std::int64_t count, Stream stream) const {
  if (from.dtype != to.dtype)
    train_.runtime.kernels().cast(from.data, from.dtype, to.data, to.dtype, count, stream);
  else if (from.data != to.data)
    train_.runtime.device().copy(to.data, from.data, count * size_of(to.dtype), stream);
}

void Transfers::assign_or_add(const Typed& sum, const Typed& addend, std::int64_t count, bool first,
                              Stream stream) const {
  if (first) return cast(addend, sum, count, stream);
  train_.runtime.kernels().accumulate(sum.data, sum.dtype, addend.data, addend.dtype, count,
                                      stream);
}

// To this rank's own sum over micro steps.
void Transfers::accumulate(int flat_unit) {
  const bool first = train_.micro_step == 0;
  transfer(train_.shard_group(), flat_unit, [this, flat_unit, first](const Hops*, Stream stream) {
    add_up(flat_unit, first, stream);
    hidden_.hide_gradients(flat_unit);
  });
}

void Transfers::add_up(int flat_unit, bool first, Stream stream) {
  for (const SegmentId id : train_.layout().trainable_of(flat_unit)) {
    const SegmentBuffers& buffers = train_.arrays.segment(id);
    assign_or_add({buffers.accumulated, buffers.sum}, {buffers.gradient_whole, buffers.dtype},
                  train_.layout().segment(id).length, first, stream);
  }
}

// The micro step may have gone on when the work runs.
void Transfers::reduce(int flat_unit, bool adds_up) {
  const bool first = train_.replaces_gradients(), last = train_.last_micro_step;
  if (train_.policy().inner_ranks > 0) return reduce_inside_groups(flat_unit, first, last);
  const Residues::Use use = use_of_residues(first);
  transfer_in_hops(
      train_.reduce_hops(), flat_unit,
      [this, flat_unit, first, last, adds_up, use](const Hops* hops, Stream stream) {
        if (adds_up) add_up(flat_unit, false, stream);
        for (const SegmentId id : train_.layout().trainable_of(flat_unit)) {
          const SegmentBuffers& buffers = train_.arrays.segment(id);
          if (hops != nullptr)
            run(reduction_in_group(id, first, last), {id, Residues::inside, use}, *hops, stream);
          else if (buffers.landing == nullptr && buffers.summands() != buffers.gradient_shard)
            assign_or_add({buffers.gradient_shard, buffers.sum},
                          {buffers.summands(), buffers.summand}, buffers.held.count(), first,
                          stream);
        }
        hidden_.hide_gradients(flat_unit);
      });
  if (!train_.policy().sums_groups_last)
    reduce_over_groups(flat_unit, first, last);
  else if (last)
    reduce_over_groups(flat_unit, true, last);
}

void Transfers::reduce_inside_groups(int flat_unit, bool first, bool last) {
  const Residues::Use use = use_of_residues(first), late = use_of_residues(true);
  transfer_in_hops(train_.reduce_hops(), flat_unit,
                   [this, flat_unit, use, late, last](const Hops* hops, Stream stream) {
                     for (const SegmentId id : train_.layout().trainable_of(flat_unit)) {
                       add_to_group_sums(id, use, *hops, stream);
                       if (last) reduce_group_sums(id, late, *hops, stream);
                     }
                     hidden_.hide_gradients(flat_unit);
                   });
}

// Slices of the ranks of a group are neighbours.
void Transfers::add_to_group_sums(const SegmentId& id, const Residues::Use& use, const Hops& hops,
                                  Stream stream) {
  const StatePolicy& policy = train_.policy();
  const SegmentBuffers& own = train_.arrays.segment(id);
  const std::int64_t slice = train_.layout().segment(id).slice;
  for (int group = 0; group < hops.second->size(); ++group) {
    const std::int64_t begin = group * hops.first.size() * slice;
    run({{own.summands() + begin * size_of(own.summand), own.summand},
         {own.group_sums + group * slice * size_of(own.sum), own.sum},
         slice,
         own.wire,
         policy.wire.reduce_inside,
         policy.precision.predivision,
         use.first},
        {id, Residues::inside, use, begin}, {hops.first}, stream);
  }
}

void Transfers::reduce_group_sums(const SegmentId& id, const Residues::Use& use, const Hops& hops,
                                  Stream stream) {
  const SegmentBuffers& own = train_.arrays.segment(id);
  const Typed sum{own.gradient_shard, own.sum};
  const std::int64_t slice = train_.layout().segment(id).slice;
  run({{own.group_sums, own.sum}, sum, slice, own.wire, train_.policy().wire.reduce},
      {id, Residues::second_hop, use}, {*hops.second}, stream);
  if (!train_.policy().optimizer_sharded())
    all_gather(train_, hops, stream, {sum.data, slice, sum.dtype}, own.sum_whole());
}

void Transfers::reduce_over_groups(int flat_unit, bool replaces, bool last) {
  if (train_.replicas() == nullptr) return;
  const Residues::Use use = use_of_residues(replaces);
  transfer(*train_.replicas(), flat_unit,
           [this, flat_unit, replaces, last, use](const Hops* hops, Stream stream) {
             for (const SegmentId id : train_.layout().trainable_of(flat_unit))
               run(reduction_over_groups(id, replaces, last), {id, Residues::over_groups, use},
                   *hops, stream);
           });
}

// Each micro step has reduced its gradients, or added them to this rank's sum.
void Transfers::reduce_late(int flat_unit) {
  if (!train_.plan.sync_each()) return reduce(flat_unit, false);
  if (train_.policy().inner_ranks > 0)
    return transfer_in_hops(
        train_.reduce_hops(), flat_unit,
        [this, flat_unit, use = use_of_residues(true)](const Hops* hops, Stream stream) {
          for (const SegmentId id : train_.layout().trainable_of(flat_unit))
            reduce_group_sums(id, use, *hops, stream);
        });
  if (train_.policy().sums_groups_last) return reduce_over_groups(flat_unit, true, true);
  if (train_.replicas() != nullptr) {
    // What rests in a file went there whole.
    if (train_.policy().updates == Portion::shard && !train_.plan.inputs.offload.gradients)
      share_slices(flat_unit, ArrayKind::gradient);
    return;
  }
  for (const SegmentId id : train_.layout().trainable_of(flat_unit)) spread_gradients(id);
}

bool Transfers::waits_for_groups(const SegmentBuffers& own, bool replaces) const {
  return train_.replicas() != nullptr && !train_.policy().sums_groups_last &&
         (!replaces || !own.sum_holds_wire());
}

// The sum over the group lands in this rank's shard of the gradient at rest: it replaces what lies
// there, or is added to it. What rests in a file is spilled from where it lands. Where the groups
// sum it in each micro step too, it waits for theirs first.
Transfers::Reduction Transfers::reduction_in_group(const SegmentId& id, bool first,
                                                   bool last) const {
  const StatePolicy& policy = train_.policy();
  const SegmentBuffers& own = train_.arrays.segment(id);
  Reduction reduction{{own.summands(), own.summand},
                      {own.gradient_shard, own.sum},
                      own.held.count(),
                      own.wire,
                      policy.wire.reduce_inside,
                      policy.precision.predivision,
                      first};
  std::byte* landing = own.landing;
  if (landing == nullptr && waits_for_groups(own, first)) landing = train_.arrays.group_sums();
  if (landing != nullptr) {
    reduction.to = {landing, own.wire};
    reduction.replaces = true;
  }
  // Where every rank updates everything, it needs the whole sum.
  if (last && !policy.optimizer_sharded()) reduction.whole = own.sum_whole();
  return reduction;
}

// From where the group's sum lies, to this rank's slice of it; to all of it where that is updated
// or spilled.
Transfers::Reduction Transfers::reduction_over_groups(const SegmentId& id, bool replaces,
                                                      bool last) const {
  const StatePolicy& policy = train_.policy();
  const SegmentBuffers& own = train_.arrays.segment(id);
  const Segment& segment = train_.layout().segment(id);
  const std::int64_t skipped = policy.slice_in_shard(segment);
  const bool lands = own.landing != nullptr;
  const Typed rest = lands ? Typed{own.landing, own.wire} : Typed{own.gradient_shard, own.sum};
  Reduction reduction{rest,
                      {rest.data + skipped * size_of(rest.dtype), rest.dtype},
                      segment.slice,
                      own.wire,
                      policy.wire.reduce};
  reduction.replaces = replaces || lands;
  if (!lands && waits_for_groups(own, replaces))
    reduction.from = {train_.arrays.group_sums(), own.wire};
  if ((last || lands) && policy.updates == Portion::shard) reduction.whole = rest.data;
  return reduction;
}

Residues::Use Transfers::use_of_residues(bool first) const {
  const auto& feedback = train_.policy().wire.feedback;
  return {first, first && feedback && train_.step % feedback->reset_steps == 0};
}

std::optional<comm::wire::SliceFeedback> Transfers::feedback_of(const Encoding& encoding, int hop,
                                                                std::int64_t begin) const {
  auto feedback =
      train_.arrays.residues().feedback(encoding.id, encoding.exchange + hop, encoding.use);
  if (feedback) {
    feedback->first = encoding.begin + begin;
    feedback->loss_scale = agreement_.loss_scale();
  }
  return feedback;
}

void Transfers::run(const Reduction& reduction, const Encoding& encoding, const Hops& hops,
                    Stream stream) {
  const auto& [from, to, part, wire, codec, divisor, replaces, whole] = reduction;
  // A sum that is replaced has the values of the wire, and travels on as such.
  const bool spreads_wire = whole != nullptr && replaces && to.dtype != wire;
  const comm::wire::Workspace workspace{train_.runtime.codec(), train_.arrays.wire_staging(),
                                        stream, errors_of(encoding.id.flat_unit)};
  const std::int64_t piece = train_.policy().reduce_piece(hops.ranks());
  for (std::int64_t begin = 0; begin < part; begin += piece) {
    const std::int64_t count = std::min(piece, part - begin);
    const Outgoing outgoing = cast_for_wire(reduction, hops.ranks(), begin, count, stream);
    const auto part_of = [&, size = size_of(wire)](int rank) {
      return outgoing.data + rank * outgoing.stride * size;
    };
    std::byte* own = part_of(hops.rank());
    std::byte* target = to.data + begin * size_of(to.dtype);
    const bool direct = replaces && to.dtype == wire;
    const comm::wire::Sum sum{direct ? target : own, wire};
    const auto first = feedback_of(encoding, 0, begin);
    const comm::wire::Hop inner{hops.first, codec, first ? &*first : nullptr};
    if (hops.second == nullptr) {
      comm::wire::reduce_scatter(inner, outgoing.data, sum, {count, outgoing.stride, wire},
                                 workspace);
    } else {
      const auto second = feedback_of(encoding, 1, begin);
      comm::wire::reduce_scatter(
          inner, {*hops.second, train_.policy().wire.reduce, second ? &*second : nullptr},
          outgoing.data, sum, {count, outgoing.stride, hops.first.size() * outgoing.stride, wire},
          workspace);
    }
    if (!direct) assign_or_add({target, to.dtype}, {own, wire}, count, replaces, stream);
    if (!spreads_wire) continue;
    all_gather(train_, hops, stream, {own, count, wire, outgoing.stride}, outgoing.data);
    for (int r = 0; r < hops.ranks(); ++r)
      cast({part_of(r), wire}, {whole + (r * part + begin) * size_of(to.dtype), to.dtype}, count,
           stream);
  }
  if (whole != nullptr && !spreads_wire)
    all_gather(train_, hops, stream, {to.data, part, to.dtype}, whole);
}

// Every rank's part of a piece in the dtype of the wire: where it lies, or cast to the staging.
Transfers::Outgoing Transfers::cast_for_wire(const Reduction& reduction, int parts,
                                             std::int64_t begin, std::int64_t count,
                                             Stream stream) {
  const auto& [data, dtype] = reduction.from;
  const DType wire = reduction.wire;
  std::byte* piece = data + begin * size_of(dtype);
  Outgoing outgoing{piece, reduction.part};
  if (dtype != wire) outgoing = {train_.arrays.staging(), count};
  for (int r = 0; r < parts; ++r) {
    std::byte* part = outgoing.data + r * outgoing.stride * size_of(wire);
    if (dtype != wire)
      cast({piece + r * reduction.part * size_of(dtype), dtype}, {part, wire}, count, stream);
    if (reduction.divisor != 1)
      train_.runtime.kernels().divide(part, wire, count, reduction.divisor, stream);
  }
  return outgoing;
}

}  // namespace zero::detail
