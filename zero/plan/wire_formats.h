// In which formats parameters and gradients travel between ranks, from the config.
#pragma once

#include <cstdint>

#include "comm/wire/codec.h"
#include "zero/plan/model.h"
#include "zero/plan/rank_grid.h"

namespace zero::detail {

struct Strategy;

struct WireFormats {
  comm::wire::Codec gather{comm::wire::Format::none}, reduce{comm::wire::Format::none};
  // Which parameters are gathered in it: all trainable ones; or of units that repeat, those of two
  // or more dimensions that are trainable, or frozen.
  bool gathers_trainable = false, gathers_matrices = false, gathers_frozen_matrices = false;
  // Ranks of a group within which the first of two hops of a reduction sums; the second sums over
  // these groups. 0: there is one hop.
  int reduce_hop_ranks = 0;

  bool encodes_gather(const Model& model, int param, bool persistent) const;
  // Parameters and slices start on multiples of it, so that no block is cut, whatever the ranks.
  std::int64_t alignment() const;
};

// `node_ranks` as of PlanRank. One rank alone sends nothing. Throws ConfigError for a format that
// does not exist, where the strategy gathers no parameters, and for keys that exclude each other.
WireFormats wire_formats_for(const Config& config, const Strategy& strategy, const RankGrid& grid,
                             int node_ranks);

}  // namespace zero::detail
