// Where the arrays of a rank rest, in which element types, and which of them there are: what memory
// is cut by, and what the plans and the optimizer step follow. Made once from placement and config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zero/plan/layout.h"
#include "zero/plan/matrix_plan.h"
#include "zero/plan/precision.h"

namespace zero::detail {

// Of the sums behind one norm of a tensor.
inline constexpr std::int64_t words_per_norm = 12;

// What gradients are added up in, beside where backward writes them.
enum class Accumulator {
  none,   // backward adds to the gradient itself
  shard,  // this rank's slice of the reduced gradient
  whole,  // all of it
};

struct StatePolicy {
  int rank = 0;
  // Whether this rank's gradient norm counts parameters that the ranks of a model-parallel group
  // hold alike: that of the group's first rank does.
  bool counts_replicas = true;
  bool counts(const Segment& segment) const { return segment.split || counts_replicas; }
  Precision precision;
  bool parameters_sharded = false;  // rest as shards, gathered into slots
  bool optimizer_sharded = false;   // each rank updates its slice
  bool gradients_whole = false;     // a whole-size gradient per unit, instead of slots and shards
  Accumulator accumulator = Accumulator::none;
  bool accumulate_locally = false;  // the whole one takes every gradient, and is reduced last
  std::int64_t reduce_piece = 0;    // elements per rank of one reduction; 0: there is none
  // Rest in a file, except what config keeps in memory.
  bool optimizer_in_file = false, gradients_in_file = false, parameters_in_file = false;
  // Of a GPU rank: rest in host memory or in that file, but for what config keeps on the GPU.
  bool optimizer_on_host = false, gradients_on_host = false, parameters_on_host = false;
  // Arrays by name, and which of them each optimizer group's elements have, by index.
  std::vector<std::string> optimizer_states;
  std::vector<std::vector<int>> states_of_group;
  std::vector<int> group_of_param;  // by index into Model::params; -1 for a frozen one
  std::int64_t norm_words = 0;      // of rules that need tensor norms
  MatrixStaging matrix_staging;     // of rules that need whole matrices
};

}  // namespace zero::detail
