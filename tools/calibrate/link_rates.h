// Rates of the collectives between the ranks of a job.
#pragma once

namespace zero::comm {
class World;
}

namespace zero::calibrate {

// In the terms of the planner (tools/planner/exchange.cpp): a node passes `rate` bytes per second
// of the whole vectors of all ranks.
struct LinkRates {
  double inside_rate = 0, inside_latency = 0;
  double reduce_share = 1;                       // the rate of sums relative to that of gathers
  double between_rate = 0, between_latency = 0;  // 0 on one node
};

// Collective; the result is that of the slowest rank, on all ranks. The world must have two ranks
// or more.
LinkRates measure_exchanges(comm::World& world);

}  // namespace zero::calibrate
