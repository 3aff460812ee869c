// What a save takes of a model in training, and a load gives back to it. Parameters and kinds have
// the numbers of describe(); buffers are parameters there. The program's thread, unless a member
// says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "zero/checkpoint/format/manifest.h"

namespace zero::checkpoint {

class Snapshot {
 public:
  virtual ~Snapshot() = default;

  // The model and how far its training is: a manifest without files, tag, and what programs add.
  // Frozen parameters may be left out, which is collective.
  virtual Manifest describe(bool trainable_only) const = 0;
  // What a rank owns of parameters and states, in the order that files have. A function of the
  // layout alone.
  virtual std::vector<ElementRange> ranges_of(int rank, bool trainable_only) const = 0;

  // A part of what this rank owns, or all of a buffer. Any thread, as readable_beside_steps() says.
  virtual void read(const ElementRange& range, std::span<std::byte> out) const = 0;
  // Whether another thread may read while a step runs, except for what is being updated.
  virtual bool readable_beside_steps() const = 0;
  // Whether all that is saved lies in the device's memory.
  virtual bool rests_on_device() const = 0;
  // Of a range's elements the first ones that lie in the device's memory.
  virtual std::span<const std::byte> on_device(const ElementRange& range) const = 0;

  // Updates change the state of one group after the other. -1: nothing changes the parameter. Where
  // there are residues, they are the last group, which reductions change.
  virtual int group_count() const = 0;
  virtual int group_of(int parameter) const = 0;

  // Whether any parameter has values that a failed load would spoil.
  virtual bool has_values() const = 0;
  // Throws LoadError, beginning with `path`, where this model cannot go on from the checkpoint
  // though its parameters and states fit; collective.
  virtual void check(const std::string& path, const Manifest& saved) = 0;
  // What this rank needs of all ranks' residues, by their numbers in describe(), where those of the
  // checkpoint that was checked are laid otherwise than this model's.
  virtual std::vector<ElementRange> residues_laid_otherwise() const = 0;
  // Throws LoadError, beginning with `file`, for values of dtype `stored` that the config refuses.
  // Any thread.
  virtual void check_values(const std::string& file, const ElementRange& range, DType stored,
                            std::span<const std::byte> bytes) const = 0;
  // Replaces a part of what this rank owns, or of a buffer, by values of dtype `stored`. Called
  // while the program's thread waits.
  virtual void write(const ElementRange& range, DType stored, std::span<const std::byte> bytes) = 0;
  // After everything was written: to wherever copies are, and training goes on from there.
  // Collective.
  virtual void adopt(const Manifest& saved) = 0;
  virtual std::int64_t samples_per_step() const = 0;
};

}  // namespace zero::checkpoint
