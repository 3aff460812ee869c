// This rank's residues of error feedback in a checkpoint: read by saves, and moved by a load if
// their saved layout differs. In a snapshot the residues of rank r are parameter first_number() +
// r, as int64 words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zero/checkpoint/snapshot.h"
#include "zero/state/residue_moves.h"
#include "zero/state/train_state.h"

namespace zero::detail {

class SavedResidues {
 public:
  explicit SavedResidues(TrainState& train) : train_(train) {}

  bool exist() const { return residues().exist(); }
  int first_number() const {
    return static_cast<int>(train_.model.params.size() + train_.plan.buffers.all.size());
  }
  // This rank's words of the range.
  std::span<std::byte> part(const checkpoint::ElementRange& range) const;
  // ManifestParameter::residues_at of a trainable parameter.
  std::vector<std::int64_t> at(int param) const;

  // Before a load: checks whether the checkpoint has residues that fit this run, and their layout.
  // Throws LoadError if these are out of range.
  void check(const std::string& path, const checkpoint::Manifest& saved,
             const checkpoint::Manifest& own);
  // Ranges that the load has to read if the checkpoint has another layout of the residues.
  std::vector<checkpoint::ElementRange> laid_otherwise() const;
  void write(const checkpoint::ElementRange& range, std::span<const std::byte> bytes) const;
  // After a load: sets residues that the checkpoint lacks to zero.
  void clear_unless_restored() const;

 private:
  const Residues& residues() const { return train_.arrays.residues(); }

  TrainState& train_;
  std::vector<ResidueMove> moves_;
  bool restores_ = false;
};

}  // namespace zero::detail
