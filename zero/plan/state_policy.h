// Which arrays a rank keeps, where, and in which element types. Memory is divided by it, and plans
// and the optimizer step follow it. Made once from the sharding strategy and the config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zero/plan/layout.h"
#include "zero/plan/matrix_plan.h"
#include "zero/plan/precision.h"

namespace zero::detail {

// 64-bit words of the sums behind one norm of a tensor.
inline constexpr std::int64_t words_per_norm = 12;

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

struct StatePolicy {
  int rank = 0;
  bool on_gpu = false;
  // Whether this rank's gradient norm counts parameters that all ranks of a model-parallel group
  // hold alike. Only the first rank of the group counts them.
  bool counts_replicas = true;
  bool counts(const Segment& segment) const { return segment.split || counts_replicas; }
  Precision precision;
  bool parameters_sharded = false;  // kept as shards, and gathered into slots
  bool optimizer_sharded = false;   // each rank updates its shard
  bool gradients_whole = false;     // a whole gradient for each unit, instead of slots and shards
  Accumulator accumulator = Accumulator::none;
  bool accumulate_locally = false;  // Accumulator::whole takes every gradient; it is reduced last
  std::int64_t reduce_piece = 0;  // elements per rank of one reduction; 0 where nothing is reduced
  Home parameter_home = Home::device, gradient_home = Home::device, optimizer_home = Home::device;
  // The elements of a segment that this rank updates.
  Range updated(const Segment& segment) const {
    return optimizer_sharded ? segment.shard_of(rank) : Range{0, segment.length};
  }
  // Optimizer states by name, and which of them the elements of each optimizer group have.
  std::vector<std::string> optimizer_states;
  std::vector<std::vector<int>> states_of_group;
  std::vector<int> group_of_param;  // by index into Model::params; -1 for a frozen one
  std::int64_t norm_words = 0;      // for rules that need tensor norms
  MatrixStaging matrix_staging;     // for rules that need whole matrices
};

}  // namespace zero::detail
