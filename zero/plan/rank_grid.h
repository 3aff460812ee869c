// The ranks as a grid of two axes: R shard groups of S consecutive ranks each. Rank q S + s is
// number s of group q; ranks of equal number are replicas. A stage shards over all ranks: one
// group, no replicas (FSDP's device mesh).
#pragma once

namespace zero::detail {

struct RankGrid {
  int ranks = 1;
  int shard_ranks = 1;  // S, a divisor of `ranks`

  int replicas() const { return ranks / shard_ranks; }
  int group(int rank) const { return rank / shard_ranks; }
  int in_group(int rank) const { return rank % shard_ranks; }
  // The index, among N equal slices of a segment, of the slice that a rank owns. The rank's
  // replicas own the adjacent slices, so that the slices of all ranks of equal number form a shard
  // of the group.
  int slice_of(int rank) const { return in_group(rank) * replicas() + group(rank); }
};

}  // namespace zero::detail
