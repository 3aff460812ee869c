// This rank's residues of error feedback in a checkpoint: what a save reads, and how a load that finds them laid out in
// another way moves them. In a snapshot the residues of rank r are parameter first_number() + r, as int64 words.
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
    return static_cast<int>(train_.model.params.size() + train_.model.buffers.size());
  }
  // The words of the range, of this rank.
  std::span<std::byte> part(const checkpoint::ElementRange& range) const;
  // ManifestParameter::residues_at of a trainable parameter.
  std::vector<std::int64_t> at(int param) const;

  // Before a load: whether the checkpoint has residues of this run, and where. Throws LoadError where these lie outside.
  void check(const std::string& path, const checkpoint::Manifest& saved,
             const checkpoint::Manifest& own);
  // What the load has to read if the checkpoint lays the residues out in another way.
  std::vector<checkpoint::ElementRange> laid_otherwise() const;
  void write(const checkpoint::ElementRange& range, std::span<const std::byte> bytes) const;
  // After a load: residues that the checkpoint lacks start from zero.
  void clear_unless_restored() const;

 private:
  const Residues& residues() const { return train_.arrays.residues(); }

  TrainState& train_;
  std::vector<ResidueMove> moves_;
  bool restores_ = false;
};

}  // namespace zero::detail
