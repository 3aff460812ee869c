// The batch that a training run with zero_core.rank_independent keeps from the first start on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "zero/checkpoint/format/manifest.h"

namespace zero::checkpoint {

struct KeptBatch {
  std::int64_t micro = 0;          // samples
  std::int64_t micro_batches = 0;  // of all ranks per step

  std::int64_t samples() const { return micro * micro_batches; }  // per step
  bool operator==(const KeptBatch&) const = default;
};

// Nothing if the checkpoint is of a run without zero_core.rank_independent.
std::optional<KeptBatch> kept_batch(const Manifest& saved);
// The batch of the newest valid checkpoint, or of the tag; nothing if there is none. Throws
// LoadError.
std::optional<KeptBatch> kept_batch(const std::string& directory, const std::string& tag);

// The micro batches of a group (zero_core.rank_independent_group); nothing if the checkpoint is of
// a run without zero_core.rank_independent. Throws LoadError.
std::optional<std::int64_t> kept_group(const Manifest& saved);

// "24 micro batches of 4 samples"
std::string text_of(const KeptBatch& batch);

}  // namespace zero::checkpoint
