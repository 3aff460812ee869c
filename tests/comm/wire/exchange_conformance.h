// Runs the exchanges of comm/wire/exchange.h on a communicator in every format, over one group and
// over every split of it into two axes, and compares each result, bit by bit, with a plain local
// evaluation, and the bytes with the formulas. Throws on the first difference.
#pragma once

#include "comm/communicator.h"

namespace zero::comm::wire::testing {

// Collective; changes the communicator's reduce group.
void check_exchanges(Communicator& communicator);

}  // namespace zero::comm::wire::testing
