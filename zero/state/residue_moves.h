// Where the residues of error feedback of a checkpoint go if its layout places parameters
// otherwise: blocks of residues move with the elements that they belong to. Cuts and parameters
// start on blocks, so none is torn. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "zero/plan/model.h"
#include "zero/state/residues.h"

namespace zero::detail {

// Bytes of one rank's residues that become bytes of this rank's.
struct ResidueMove {
  int from_rank = 0;
  std::int64_t from = 0, to = 0, count = 0;

  std::int64_t from_end() const { return from + count; }
  auto operator<=>(const ResidueMove&) const = default;
};

// Where a layout has a trained parameter: the number of its segment, elements of a slice of that,
// and its first element there.
struct SavedPlace {
  int param = 0;
  std::int64_t segment = 0, slice = 0, offset = 0;
};

// The layout of the trained parameters; none where one lies outside of its segment.
std::optional<Layout> layout_of(const Model& model, const RankGrid& grid,
                                const std::vector<SavedPlace>& places);

// All that the plan's rank needs, in the order of ranks and of bytes. The saved layout is for the
// ranks, groups and formats of the plan.
std::vector<ResidueMove> residue_moves(const Model& model, const EnginePlan& plan,
                                       const Layout& saved);

}  // namespace zero::detail
