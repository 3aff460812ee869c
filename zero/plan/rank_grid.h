// The ranks as a grid of two axes: shard groups of S neighbouring ranks, R of them side by side.
// Rank q S + s is number s of group q; ranks of equal number are each other's replicas. A stage
// shards over all ranks: one group, no replicas (FSDP's device mesh).
#pragma once

namespace zero::detail {

struct RankGrid {
  int ranks = 1;
  int shard_ranks = 1;  // S, which divides `ranks`

  int replicas() const { return ranks / shard_ranks; }
  int group(int rank) const { return rank / shard_ranks; }
  int in_group(int rank) const { return rank % shard_ranks; }
  // Which of the N equal slices of a segment a rank owns: those of its replicas are its neighbours,
  // so that all slices of ranks of one number are one shard of the group.
  int slice_of(int rank) const { return in_group(rank) * replicas() + group(rank); }
};

}  // namespace zero::detail
