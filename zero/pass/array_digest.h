// Digests of arrays, to compare copies that must be equal on several ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zero/runtime/runtime_core.h"

namespace zero::detail {

// The array may be in the device's memory; then work queued on its compute stream comes first, and
// the call waits for it. The digest depends neither on the device nor on the number of threads. For
// the program's thread.
std::uint64_t digest_of_array(RuntimeCore& runtime, const std::byte* array, std::int64_t bytes);

}  // namespace zero::detail
