// Measurements between ranks: latency and bandwidth of pairs of hosts, of two ranks on one host,
// and the offsets of the hosts' clocks.
#pragma once

#include <cstdint>
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
  double bytes_per_second = 0;      // one way, of messages of 8 MiB
  double clock_offset_seconds = 0;  // of the second's clock against the first's
};

struct Links {
  std::string transport;           // of all ranks
  std::vector<std::string> hosts;  // by rank
  std::vector<Link> links;
};

// Collective; some seconds at most. The first ranks of the hosts are paired each with each (beyond
// 8 hosts, each with the next one), and the first two ranks of each host. Rank 0 has all links.
Links measure_links(comm::World& world);

std::string to_json(const Links& links);
// Throws ConfigError for other text.
Links links_of(const std::string& json);

}  // namespace zero::doctor
