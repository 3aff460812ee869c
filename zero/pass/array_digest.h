// Digests of arrays, to compare copies that must be equal on several ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "zero/state/train_state.h"

namespace zero::detail {

// Returns a digest of an array of these segments, whole: ArrayKind::parameter or gradient.
// The arrays may be in the device's memory; then work queued on the compute stream comes first, and
// the call waits. The digest depends neither on the device nor on the number of threads. For the
// program's thread.
std::uint64_t digest_of_segments(TrainState& train, std::span<const SegmentId> segments,
                                 ArrayKind array);

}  // namespace zero::detail
