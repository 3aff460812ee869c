// The arrays that a rank keeps, with home and element types. Memory layout, plans and the optimizer
// step follow this policy. Made once from the sharding strategy and the config.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "zero/plan/array_row.h"
#include "zero/plan/precision.h"

namespace zero::detail {

// The memory for sums of gradients, apart from the buffer that backward writes.
enum class Accumulator {
  none,   // no accumulator: backward adds into the gradient buffer
  shard,  // this rank's shard of the reduced gradient
  whole,  // the whole sum, if reduced
  local,  // the whole sum of this rank, to which each micro step adds; reduced at the end
};

// How summands are folded one by one, see zero/plan/rank_independence.h.
struct Fold {
  std::int64_t group = 1;   // micro batches of a group, whose sum is rounded
  bool stays_open = false;  // a group may continue in the next micro step
  // Ranks that hold one group, and sum it before the exchange between nodes; 0: no such ranks.
  int ranks = 0;
};

// Sums of gradients inside of groups of ranks, over the groups, and over micro steps.
struct GroupSums {
  // With replicas: a group's sums accumulate in the shards, which the last micro step sums over the
  // groups; or each micro step sums over the groups first, then adds to the shards.
  bool last = false, adds = false;
  // Without replicas, the same for groups of this many ranks that only sum together. Each rank adds
  // up its group's sums of the slices of the ranks of equal number in all groups, and the last
  // micro step sums these over the groups. 0: no such groups.
  int inner_ranks = 0;
};

// Memory of arrays between uses. Parts that the config keeps in the memory of computation, by ratio
// or cache, stay there regardless.
struct Homes {
  Tier parameter = Tier::memory, gradient = Tier::memory, optimizer = Tier::memory;
  // The GPU updates the state offloaded to host memory, all of it or a part.
  bool steps_on_device = false, splits_steps = false;
  // `who`: zero_core.offload_step
  void step_by(std::string_view who) {
    steps_on_device = who != "host";
    splits_steps = who == "both";
  }

  bool any_file() const { return optimizer == Tier::file || parameter == Tier::file; }
};

// Elements of a collective, at most.
struct Buckets {
  std::int64_t reduce = 0;  // 0 if nothing is reduced
  std::int64_t gather = 0;
};

// The element types of a segment's arrays.
struct SegmentTypes {
  DType dtype = DType::fp32;  // the parameter, and the gradient as written by backward
  // The gradient between ranks; on a single rank the summand, except for rank_independent.
  DType wire = DType::fp32;
  DType sum = DType::fp32;      // the gradient between steps and micro steps
  DType summand = DType::fp32;  // the arrays that a reduction adds up
  DType master_dtype = DType::fp32, state_dtype = DType::fp32;

  DType of(ArrayKind kind) const {
    return ByKind<DType>{dtype, dtype, dtype, dtype,        sum,         sum,  wire,
                         wire,  sum,   sum,   master_dtype, state_dtype, dtype}[kind];
  }
  // Whether master weights are a separate array.
  bool has_master() const { return master_dtype != dtype; }
  // Whether the kind refers to the parameter: a parameter without master weights serves as master.
  bool is_parameter(ArrayKind kind) const {
    return kind == ArrayKind::parameter_shard || (kind == ArrayKind::master && !has_master());
  }
  // Whether sums keep the wire values, if nothing is added.
  bool sum_holds_wire() const { return sum == wire || sum == DType::fp32; }
};

struct StatePolicy {
  int rank = 0;
  ProcessGrid grid;
  bool on_gpu = false;
  // Whether this rank's gradient norm counts parameters that all ranks of a tensor group hold
  // equally. Only the first rank of the group counts them.
  bool counts_replicas = true;
  bool counts(const Segment& segment) const {
    return !segment.elsewhere && (segment.split || counts_replicas);
  }
  // Whether the norm of a step counts this rank's measurement of a segment.
  bool measures(const Segment& segment) const { return counts(segment) && measures_shards(); }
  // If replicas update the same shard, only the first group counts the shard.
  bool measures_shards() const { return updates != Holding::shard || grid.group(rank) == 0; }
  Precision precision;
  std::optional<Fold> fold;  // zero_core.rank_independent
  bool rank_independent() const { return fold.has_value(); }
  bool keeps_open_group() const { return fold && fold->stays_open; }
  // Elements that are folded at once: on CPU ranks, as many as stay in the cache. A GPU folds a
  // whole piece, because launches cost more than memory traffic.
  std::int64_t fold_block(std::int64_t piece) const {
    return on_gpu ? piece : std::min<std::int64_t>(piece, 4096);
  }
  bool parameters_sharded = false;   // kept as shards, and gathered into slots
  Holding updates = Holding::whole;  // elements of each segment that this rank updates
  bool optimizer_sharded() const { return updates != Holding::whole; }
  bool gradients_whole = false;  // a whole gradient for each unit, instead of slots and shards
  Accumulator accumulator = Accumulator::none;
  bool accumulates_locally() const { return accumulator == Accumulator::local; }
  // Whether the rank keeps the whole sum apart from backward's output.
  bool keeps_whole_sum() const {
    return accumulator == Accumulator::whole || accumulates_locally();
  }
  // On one rank: whether the reduced gradient is the memory that a reduction would read.
  bool keeps_sum_in_place() const {
    return accumulator == Accumulator::none || accumulates_locally();
  }
  SegmentTypes types(const Segment& segment) const {
    SegmentTypes types;
    types.dtype = segment.dtype.value_or(precision.compute);
    types.sum = rank_independent() ? DType::fp32 : segment.dtype.value_or(precision.accumulation);
    types.master_dtype = precision.master_of(types.dtype);
    types.state_dtype = precision.state_of(types.dtype);
    types.summand = accumulates_locally() ? types.sum : types.dtype;
    const bool rounds = grid.data_ranks() > 1 || rank_independent();
    types.wire = rounds ? segment.dtype.value_or(precision.wire) : types.summand;
    return types;
  }
  // Ranks that share a second copy of gathered parameters; 0 without one.
  int second_copy_ranks = 0;
  // This rank's part of the second copy.
  Range second_copy(const Segment& segment) const {
    return segment.held(Holding::shard, {grid.data_ranks() / second_copy_ranks, second_copy_ranks},
                        rank);
  }
  Buckets buckets;
  // Elements per rank of a collective among this many ranks that moves at most the bucket in total.
  std::int64_t reduce_piece(int parts) const {
    return buckets.reduce > 0 ? piece(buckets.reduce, parts) : 0;
  }
  std::int64_t gather_piece(int parts) const { return piece(buckets.gather, parts); }
  std::int64_t piece(std::int64_t bucket, int parts) const {
    const std::int64_t alignment = wire.alignment();
    return std::max(alignment, bucket / parts / alignment * alignment);
  }
  WireFormats wire;
  GroupSums group_sums;
  // Ranks of the groups that sum gradients first, in a single reduction or in several; 0: a
  // reduction is a single sum over the shard group.
  int first_sum_ranks() const {
    if (group_sums.inner_ranks > 0) return group_sums.inner_ranks;
    return fold && fold->ranks > 0 ? fold->ranks : wire.reduce_hop;
  }
  Homes homes;
  // The parts of a segment that this rank owns, holds if parameters or gradients are sharded,
  // updates, and measures for the gradient norm.
  Range slice(const Segment& segment) const { return segment.held(Holding::slice, grid, rank); }
  Range shard(const Segment& segment) const { return segment.held(Holding::shard, grid, rank); }
  // First element of the slice, counted from the start of the shard.
  std::int64_t slice_in_shard(const Segment& segment) const {
    return slice(segment).begin - shard(segment).begin;
  }
  Range updated(const Segment& segment) const { return segment.held(updates, grid, rank); }
  Range measured(const Segment& segment) const {
    return optimizer_sharded() ? updated(segment) : slice(segment);
  }
};

}  // namespace zero::detail
