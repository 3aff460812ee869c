// Formats of parameters and gradients sent between ranks, from the config.
#pragma once

#include <cstdint>
#include <optional>

#include "comm/wire/codec.h"
#include "zero/config.h"
#include "zero/plan/model.h"
#include "zero/plan/process_grid.h"

namespace zero::detail {

struct Strategy;

struct WireFormats {
  comm::wire::Codec gather{comm::wire::Format::none}, reduce{comm::wire::Format::none};
  // Formats inside a node if exchanges take two hops; otherwise equal to the above.
  comm::wire::Codec gather_inside = gather, reduce_inside = reduce;
  // Parameters gathered in the format: all that are trainable; or, in units that repeat, those of
  // two or more dimensions that are trainable, or frozen.
  bool gathers_trainable = false, gathers_matrices = false, gathers_frozen_matrices = false;
  // Ranks of the groups of the first of two hops; the second hop runs between ranks of equal
  // numbers. Both divide a shard group. 0: a single hop.
  int gather_hop = 0, reduce_hop = 0;
  bool measures_errors = false;  // of encodings

  // Whether gradients have another format inside a node than between nodes.
  bool reduces_otherwise_inside() const { return reduce_inside != reduce; }
  bool encodes_gather(const Model& model, int param, bool persistent) const;
  bool encodes() const {
    return gather.format != comm::wire::Format::none || reduce.format != comm::wire::Format::none;
  }
  // Parameters and slices start on multiples of this, so that no block is divided, for any number
  // of ranks.
  std::int64_t alignment() const;
};

// `node_ranks` is as in PlanRank. A single rank sends nothing. Throws ConfigError for a format that
// does not exist, if the strategy gathers no parameters, and for keys that exclude each other.
WireFormats wire_formats_for(const Config& config, const Strategy& strategy,
                             const ProcessGrid& grid, int node_ranks);

}  // namespace zero::detail
