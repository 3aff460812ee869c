// What travels encoded between ranks, as text. Engines of equal texts, and of equal terms
// otherwise, have equal bits; a row or a group that encodes once more has others.
#pragma once

#include <string>

#include "zero/plan/state_policy.h"

namespace zero::detail {

// "gradients as int8 in blocks of 256 of each rank, then int8 in blocks of 256 of sums of 2 ranks";
// empty if all travels as it is.
std::string describe_encodings(const StatePolicy& policy);

}  // namespace zero::detail
