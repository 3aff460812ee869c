// The process grid: the axes over which the ranks of a run share work (as the ParallelDims of
// torchtitan and the device mesh of PyTorch). Every group of ranks is a set of axes, or a part of
// one axis. An axis of size 1 has no effect.
//
// Data ranks have micro batches of their own, and sum gradients: the rank at (replicate q, shard s)
// is data rank q S + s. A ZeRO stage shards over all data ranks: one shard group, no replicas. Each
// data rank stands for the ranks that hold parts of the same model: the rank at (pipe p, data d,
// tensor t) is rank (p D + d) T + t of the grid.
#pragma once

#include <cstdint>
#include <string>

#include "zero/base/enum_array.h"

namespace zero::detail {

// From the slowest coordinate of a rank to the fastest.
enum class Axis : std::uint8_t {
  pipe,       // consecutive units are given to the ranks: the stages of a pipeline
  replicate,  // ranks of equal number in the shard groups hold the same shards
  shard,      // parameters, gradients and optimizer state are divided
  tensor,     // parameters are declared in parts (ParamOptions::split)
};
inline constexpr int axis_count = 4;

const char* name_of(Axis axis);

class ProcessGrid {
 public:
  ProcessGrid() = default;
  ProcessGrid(int replicas, int shard_ranks, int tensor_ranks = 1, int stages = 1)
      : sizes_{{{stages, replicas, shard_ranks, tensor_ranks}}} {}

  int size(Axis axis) const { return sizes_[axis]; }
  int replicas() const { return size(Axis::replicate); }
  int shard_ranks() const { return size(Axis::shard); }
  int tensor_ranks() const { return size(Axis::tensor); }
  int stages() const { return size(Axis::pipe); }
  int data_ranks() const { return replicas() * shard_ranks(); }
  int ranks() const { return stages() * data_ranks() * tensor_ranks(); }
  // Returns the coordinate of a rank of the grid.
  int coordinate(Axis axis, int rank) const;
  int data_rank(int rank) const { return rank / tensor_ranks() % data_ranks(); }
  // "replicate 1 of 2, shard 0 of 4": a rank's place on the axes of more than one rank.
  std::string place_of(int rank) const;

  // The shard group of a data rank, and the rank's number in the group.
  int group(int data_rank) const { return data_rank / shard_ranks(); }
  int in_group(int data_rank) const { return data_rank % shard_ranks(); }
  // The index, among N equal slices of a segment, of the slice that a data rank owns. The rank's
  // replicas own the adjacent slices, so that the slices of all ranks of equal number form a shard
  // of the group.
  int slice_of(int data_rank) const { return in_group(data_rank) * replicas() + group(data_rank); }
  // Groups of one rank cannot shard: then all data ranks form a single group.
  ProcessGrid with_shards() const {
    return shard_ranks() > 1 ? *this : ProcessGrid(1, data_ranks(), tensor_ranks(), stages());
  }

 private:
  EnumArray<Axis, int, axis_count> sizes_{{{1, 1, 1, 1}}};
};

}  // namespace zero::detail
