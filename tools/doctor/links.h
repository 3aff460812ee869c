// Measurements between ranks: latency and bandwidth of pairs of hosts, of two ranks on one host,
// and the offsets of the hosts' clocks.
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
  double bytes_per_second = 0;      // one way, of messages of 8 MiB, or less on slow links
  double clock_offset_seconds = 0;  // of the second's clock against the first's
};

struct Links {
  std::string transport;           // of all ranks
  std::vector<std::string> hosts;  // by rank
  std::vector<Link> links;
};

// Every rank's text, on all ranks, by rank. Collective.
std::vector<std::string> gather_texts(comm::World& world, const std::string& own);

// Collective, some seconds; all ranks have the result. The first two ranks of each host are paired,
// and the first ranks of each two hosts, in rounds in which a host is in one pair at most. The
// world has two ranks or more.
Links measure_links(comm::World& world);

}  // namespace zero::doctor
