// Round trips between two ranks: the latency, and the offset of the clocks.
#pragma once

#include "comm/communicator.h"

namespace zero::comm {

struct Ping {
  double latency_seconds = 0;       // one way, of the fastest round trip
  double clock_offset_seconds = 0;  // the second rank's clock minus the first's, in that round trip
};

// Collective over a communicator of two ranks; the result is valid on the first. `clock` returns
// seconds.
Ping ping(Communicator& pair, double (*clock)());

}  // namespace zero::comm
