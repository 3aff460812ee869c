// Moves residues of error feedback from a checkpoint with another layout of parameters: blocks of
// residues move with the elements that they belong to. Cuts and parameters start on blocks, so no
// block is divided. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "zero/plan/model.h"
#include "zero/state/residues.h"

namespace zero::detail {

// Bytes of one rank's residues that become bytes of this rank's residues.
struct ResidueMove {
  int from_rank = 0;
  std::int64_t from = 0, to = 0, count = 0;

  std::int64_t from_end() const { return from + count; }
  auto operator<=>(const ResidueMove&) const = default;
};

// A trained parameter's place in a layout: the number of its segment, elements of a slice of that,
// and its first element in it.
struct SavedPlace {
  int param = 0;
  std::int64_t segment = 0, slice = 0, offset = 0;
};

// Returns the layout of the trained parameters; none if one is outside of its segment.
std::optional<Layout> layout_of(const Model& model, const RankGrid& grid,
                                const std::vector<SavedPlace>& places);

// Returns all moves for the plan's rank, in the order of ranks and of bytes. The saved layout has
// the ranks, groups and formats of the plan.
std::vector<ResidueMove> residue_moves(const Model& model, const EnginePlan& plan,
                                       const Layout& saved);

}  // namespace zero::detail
