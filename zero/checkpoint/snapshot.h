// The interface of saves and loads to a model in training. Parameters and kinds have the numbers of
// describe(), with buffers as parameters; ranks are those of the whole grid. For the program's
// thread, unless a member says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zero/checkpoint/format/manifest.h"

namespace zero::checkpoint {

class Snapshot {
 public:
  virtual ~Snapshot() = default;

  // Returns the model and the progress of training: a manifest without files, tag, and the
  // program's additions. Collective if frozen parameters are left out.
  virtual Manifest describe(bool trainable_only) const = 0;
  // Returns the ranges of parameters and states that a rank saves, in the order of the rank's file:
  // each element is saved by one rank. A function of the layout only.
  virtual std::vector<ElementRange> ranges_of(int rank, bool trainable_only) const = 0;
  // Returns the ranges that this rank needs in a load: its own slices, also of parameters that
  // another rank of the tensor group saves.
  virtual std::vector<ElementRange> needed_ranges() const = 0;

  // Reads a piece of this rank's elements, or all of a buffer. Any thread, if
  // readable_during_steps().
  virtual void read(const ElementRange& range, std::span<std::byte> out) const = 0;
  // Whether another thread may read while a step runs, except for arrays being updated.
  virtual bool readable_during_steps() const = 0;
  // Whether all saved state is in the device's memory.
  virtual bool rests_on_device() const = 0;
  // Returns the first elements of a range that are in the device's memory.
  virtual std::span<const std::byte> on_device(const ElementRange& range) const = 0;

  // Updates change the state group by group. -1: nothing changes the parameter.
  virtual int group_count() const = 0;
  virtual int group_of(int parameter) const = 0;

  // Whether any parameter has values that a failed load would destroy.
  virtual bool has_values() const = 0;
  // Throws LoadError, beginning with `path`, if this model cannot continue from the checkpoint
  // although parameters and states fit; collective.
  virtual void check(const std::string& path, const Manifest& saved) = 0;
  // Throws LoadError, beginning with `file`, for values of the dtype of this name that the config
  // rejects. Any thread.
  virtual void check_values(const std::string& file, const ElementRange& range,
                            std::string_view stored, std::span<const std::byte> bytes) const = 0;
  // Replaces a piece of this rank's elements, or of a buffer, by values of the dtype of this name.
  // Called while the program's thread waits.
  virtual void write(const ElementRange& range, std::string_view stored,
                     std::span<const std::byte> bytes) = 0;
  // Call after everything was written: updates all copies, and training continues from there.
  // Collective.
  virtual void adopt(const Manifest& saved) = 0;
  virtual std::int64_t samples_per_step() const = 0;
};

}  // namespace zero::checkpoint
