// The keepers (keeper.h) of all hosts of a job: this host's keeper is a child, the remote keepers
// are children of the agents there. Sends each the contacts of its peers before each start. Used
// only by the thread of the links.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/zero/host_links.h"
#include "tools/zero/hosts.h"
#include "tools/zero/keeper_process.h"

namespace zero::tool {

class Keepers {
 public:
  // `hosts`: all that may be used; empty: this machine.
  Keepers(const std::string& job, HostLinks& links, const std::vector<Host>& hosts);

  void add_sources(std::vector<pollfd>& sources) const;
  void serve() { own_.serve(); }
  // Whether the keepers of this host and of all hosts that answer are ready.
  bool ready() const;
  // Call before a start, and again with the hosts of the ranks, in rank order, once these are
  // known. From the first call on, ranks of earlier generations are refused.
  void begin(std::int64_t generation, const std::vector<Host>& with_ranks);
  // Asks for the step of the newest complete copy. newest() returns the step once known; -1: none.
  void search();
  const std::optional<std::int64_t>& newest() const { return newest_; }

 private:
  void take_line(const std::string& line);
  // "PORT TOKEN ANSWER" of a host's keeper; empty: not ready.
  std::string contact(const Host& host) const;
  void send(const Host& host, const std::string& line);

  HostLinks& links_;
  std::vector<Host> hosts_;  // with this machine, which may have no ranks
  std::string own_contact_;
  std::optional<std::int64_t> newest_;
  KeeperProcess own_;
};

}  // namespace zero::tool
