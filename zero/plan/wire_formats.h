// In which formats parameters and gradients travel between ranks, from the config.
#pragma once

#include <cstdint>
#include <optional>

#include "comm/wire/codec.h"
#include "zero/config.h"
#include "zero/plan/model.h"
#include "zero/plan/rank_grid.h"

namespace zero::detail {

struct Strategy;

// Of encoded reductions (LoCo): the share of a residue that stays in a step, and after how many
// steps residues start from zero.
struct ErrorFeedback {
  float beta = 0.8f;
  std::int64_t reset_steps = 1024;
};

struct WireFormats {
  comm::wire::Codec gather{comm::wire::Format::none}, reduce{comm::wire::Format::none};
  // Inside a node, where exchanges go in two hops; else the same as above.
  comm::wire::Codec gather_inside = gather, reduce_inside = reduce;
  // Which parameters are gathered in it: all trainable ones; or of units that repeat, those of two
  // or more dimensions that are trainable, or frozen.
  bool gathers_trainable = false, gathers_matrices = false, gathers_frozen_matrices = false;
  // Ranks of the groups inside which the first of two hops goes; the other one goes between their
  // ranks of equal numbers. Both divide a shard group. 0: there is one hop.
  int gather_hop = 0, reduce_hop = 0;
  std::optional<ErrorFeedback> feedback;  // of reductions in formats with blocks

  // Whether gradients travel inside a node in another format than between nodes.
  bool reduces_otherwise_inside() const { return reduce_inside != reduce; }
  bool encodes_gather(const Model& model, int param, bool persistent) const;
  bool encodes() const {
    return gather.format != comm::wire::Format::none || reduce.format != comm::wire::Format::none;
  }
  // Parameters and slices start on multiples of it, so that no block is cut, whatever the ranks.
  std::int64_t alignment() const;
};

// `node_ranks` as of PlanRank. One rank alone sends nothing. Throws ConfigError for a format that
// does not exist, where the strategy gathers no parameters, and for keys that exclude each other.
WireFormats wire_formats_for(const Config& config, const Strategy& strategy, const RankGrid& grid,
                             int node_ranks);

}  // namespace zero::detail
