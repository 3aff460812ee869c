// The hosts of a job: one list, read once from a hostfile in the form that people write, and handed
// to the launcher in the one form that it and the plan count alike. Pure: the machine's names and
// what a name means come from the caller.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace zero::tool {

enum class LauncherKind { open_mpi, hydra, other };

struct Host {
  std::string name;
  std::optional<int> slots;  // none: the launcher counts the host's cores
  bool local = false;        // this machine, by whatever name
  std::string user = {};     // of the remote shell; empty: one's own
  int line = 0;              // of the hostfile
};

// What a name means here.
struct HostPlace {
  bool local = false;
  std::string problem;  // why the name means nothing; empty: it does
};
using HostLookup = std::function<HostPlace(const std::string& name)>;

struct HostfileSource {
  std::string text, name;  // the name stands in messages
  LauncherKind kind = LauncherKind::open_mpi;
  int local_slots = 1;  // of this machine, where the file gives none
};

// A host that is repeated without slots counts once per line. Throws ConfigError with FILE:LINE and
// what is expected, TopologyError for a name that means nothing.
std::vector<Host> parse_hostfile(const HostfileSource& source, const HostLookup& look_up);

// As the launcher reads them.
std::vector<std::string> hostfile_lines(const std::vector<Host>& hosts, LauncherKind kind);

// Whether the launcher reads the file as these lines say, so that it can be handed over as it is.
bool says_the_same(const std::string& text, const std::vector<std::string>& lines);

}  // namespace zero::tool
