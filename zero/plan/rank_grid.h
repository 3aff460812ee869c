// The ranks as a grid of two axes: R shard groups of S consecutive ranks each. Rank q S + s is
// number s of group q; ranks of equal number are each other's replicas. A stage shards over all
// ranks: one group, no replicas (FSDP's device mesh).
#pragma once

namespace zero::detail {

struct RankGrid {
  int ranks = 1;
  int shard_ranks = 1;  // S, a divisor of `ranks`

  int replicas() const { return ranks / shard_ranks; }
  int group(int rank) const { return rank / shard_ranks; }
  int in_group(int rank) const { return rank % shard_ranks; }
  // The index of the slice of a segment, of N equal ones, that a rank owns: its replicas own the
  // adjacent slices, so that the slices of all ranks of one number form one shard of the group.
  int slice_of(int rank) const { return in_group(rank) * replicas() + group(rank); }
};

}  // namespace zero::detail
