// Which arrays a rank keeps, where, and in which element types. Memory is divided by it, and plans
// and the optimizer step follow it. Made once from the sharding strategy and the config.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "zero/plan/layout.h"
#include "zero/plan/precision.h"

namespace zero::detail {

// Which memory gradients are summed in, apart from where backward writes them.
enum class Accumulator {
  none,   // none: backward adds to the gradient itself
  shard,  // this rank's shard of the reduced gradient
  whole,  // all of it
};

// Where an array is kept between its uses. What the config keeps on the device or in memory, by
// ratio or cache, stays there all the same.
enum class Home {
  device,  // in the memory in which the rank computes: a GPU's, or the host's on a CPU rank
  host,    // in host memory, beside a GPU
  file,    // in a file; beside a GPU it passes through host memory
};

// The element types of a segment's arrays.
struct SegmentTypes {
  DType dtype = DType::fp32;    // of the parameter, and of the gradient as backward writes it
  DType wire = DType::fp32;     // of the gradient between ranks; on one rank alone, of the summand
  DType sum = DType::fp32;      // of the gradient between steps and micro steps
  DType summand = DType::fp32;  // of the arrays that a reduction adds up
  DType master_dtype = DType::fp32, state_dtype = DType::fp32;

  // Sums keep the values of the wire, if they are not added to others.
  bool sum_holds_wire() const { return sum == wire || sum == DType::fp32; }
};

struct StatePolicy {
  int rank = 0;
  RankGrid grid;
  bool on_gpu = false;
  // Whether this rank's gradient norm counts parameters that all ranks of a model-parallel group
  // hold alike. Only the first rank of the group counts them.
  bool counts_replicas = true;
  bool counts(const Segment& segment) const { return segment.split || counts_replicas; }
  // Whether the norm of a step counts what this rank measures of a segment.
  bool measures(const Segment& segment) const { return counts(segment) && measures_shards(); }
  // Of replicas that update the same shard, only the first group's count it.
  bool measures_shards() const { return updates != Portion::shard || grid.group(rank) == 0; }
  Precision precision;
  bool parameters_sharded = false;   // kept as shards, and gathered into slots
  Portion updates = Portion::whole;  // what this rank updates of each segment
  bool optimizer_sharded() const { return updates != Portion::whole; }
  bool gradients_whole = false;  // a whole gradient for each unit, instead of slots and shards
  Accumulator accumulator = Accumulator::none;
  bool accumulate_locally = false;  // Accumulator::whole takes every gradient; it is reduced last
  // On one rank: the reduced gradient is the memory that a reduction would read.
  bool keeps_sum_in_place() const {
    return accumulator == Accumulator::none ||
           (accumulator == Accumulator::whole && accumulate_locally);
  }
  SegmentTypes types(const Segment& segment) const {
    SegmentTypes types;
    types.dtype = segment.dtype.value_or(precision.compute);
    types.sum = segment.dtype.value_or(precision.accumulation);
    types.master_dtype = precision.master_of(types.dtype);
    types.state_dtype = precision.state_of(types.dtype);
    types.summand = accumulate_locally ? types.sum : types.dtype;
    types.wire = grid.ranks > 1 ? segment.dtype.value_or(precision.wire) : types.summand;
    return types;
  }
  // Ranks that share a second copy of gathered parameters; 0: there is none.
  int second_copy_ranks = 0;
  // What this rank keeps of it.
  Range second_copy(const Segment& segment) const {
    return segment.part(Portion::shard, {grid.ranks, second_copy_ranks}, rank);
  }
  std::int64_t reduce_bucket = 0;  // elements of one reduction; 0 where nothing is reduced
  std::int64_t gather_bucket = 0;  // elements of one gather of parameters
  // Elements per rank of one collective among so many, so that it moves at most the bucket in all.
  std::int64_t reduce_piece(int parts) const {
    return reduce_bucket > 0 ? piece(reduce_bucket, parts) : 0;
  }
  std::int64_t gather_piece(int parts) const { return piece(gather_bucket, parts); }
  std::int64_t piece(std::int64_t bucket, int parts) const {
    const std::int64_t alignment = wire.alignment();
    return std::max(alignment, bucket / parts / alignment * alignment);
  }
  WireFormats wire;
  // Skipped steps are usual, since the loss scale is dynamic: residues are renewed apart, and
  // replace those of before when the step is applied.
  bool residues_await_decision = false;
  bool measures_errors = false;  // of encodings
  // With replicas: a group's sums are added up at rest, and over the groups in the last micro step;
  // or in each micro step they are summed over the groups first, and then added to what is at rest.
  bool sums_groups_last = false, adds_group_sums = false;
  // Without replicas, the same for groups of so many ranks that only sum together: each rank adds
  // up what its group sums of the slices of the ranks that have its number in their groups, and the
  // last micro step sums these over the groups. 0: there are no such groups.
  int inner_ranks = 0;
  // Ranks of the groups inside which gradients are summed first, in one reduction or in several; 0:
  // a reduction is one sum over the shard group.
  int first_sum_ranks() const { return inner_ranks > 0 ? inner_ranks : wire.reduce_hop; }
  Home parameter_home = Home::device, gradient_home = Home::device, optimizer_home = Home::device;
  bool in_file() const { return optimizer_home == Home::file || parameter_home == Home::file; }
  // What rests in host memory beside a GPU is updated by the GPU.
  bool steps_on_device = false;
  // What this rank owns, holds where parameters or gradients are sharded, updates, and measures for
  // the gradient norm.
  Range slice(const Segment& segment) const { return segment.part(Portion::slice, grid, rank); }
  Range shard(const Segment& segment) const { return segment.part(Portion::shard, grid, rank); }
  // Where the slice begins in the shard.
  std::int64_t slice_in_shard(const Segment& segment) const {
    return slice(segment).begin - shard(segment).begin;
  }
  Range updated(const Segment& segment) const { return segment.part(updates, grid, rank); }
  Range measured(const Segment& segment) const {
    return optimizer_sharded() ? updated(segment) : slice(segment);
  }
  std::vector<std::string> optimizer_states;  // by name, of all optimizer groups
  std::int64_t norm_words = 0;                // for rules that need tensor norms
};

}  // namespace zero::detail
