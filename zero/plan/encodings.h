// Describes the wire formats in use between ranks as text. If the texts and all other settings are
// equal, results are bitwise identical; an additional encoding in a strategy or group changes them.
#pragma once

#include <string>

#include "zero/plan/state_policy.h"

namespace zero::detail {

// "gradients as int8 in blocks of 256 of each rank, then int8 in blocks of 256 of sums of 2 ranks";
// empty if nothing is encoded.
std::string describe_encodings(const StatePolicy& policy);

}  // namespace zero::detail
