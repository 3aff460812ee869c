// Measures latency and bandwidth between pairs of hosts and between two ranks of a host, and the
// offsets of the hosts' clocks.
#pragma once

#include <string>
#include <vector>

namespace zero::comm {
class World;
}

namespace zero::doctor {

struct Link {
  int first = 0, second = 0;        // ranks
  std::string transport;            // as Communicator::transport()
  double latency_seconds = 0;       // one way
  double bytes_per_second = 0;      // one way, with messages of 8 MiB, or less on slow links
  double clock_offset_seconds = 0;  // the second's clock minus the first's
};

struct Links {
  std::string transport;           // of all ranks
  std::vector<std::string> hosts;  // by rank
  std::vector<Link> links;
};

// Returns every rank's text, by rank, on all ranks. Collective.
std::vector<std::string> gather_texts(comm::World& world, const std::string& own);

// Measures the first two ranks of each host, and the first ranks of every two hosts. A host is in
// at most one pair at a time, so that measurements do not share a link. Takes some seconds.
// Collective; returns the result on all ranks. The world must have two ranks or more.
Links measure_links(comm::World& world);

}  // namespace zero::doctor
