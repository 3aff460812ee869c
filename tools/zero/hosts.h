// Hosts of a job: one list, read once from a user's hostfile, and passed to the launcher in a form
// that launcher and plan count alike. Pure: the caller provides the machine's names and the lookup
// of a name.
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
  bool local = false;        // this machine, by any of its names
  std::string user = {};     // of the remote shell; empty: the current one
  int line = 0;              // of the hostfile
};

// Result of a name lookup on this machine.
struct HostPlace {
  bool local = false;
  std::string problem;  // why the name is unknown; empty: known
};
using HostLookup = std::function<HostPlace(const std::string& name)>;

struct HostfileSource {
  std::string text, name;  // the name is used in messages
  LauncherKind kind = LauncherKind::open_mpi;
  int local_slots = 1;  // of this machine, if the file gives none
};

// Counts a host that is repeated without slots once per line. Throws ConfigError with FILE:LINE and
// the expected form, TopologyError for an unknown name.
std::vector<Host> parse_hostfile(const HostfileSource& source, const HostLookup& look_up);

// Returns the lines in the launcher's form.
std::vector<std::string> hostfile_lines(const std::vector<Host>& hosts, LauncherKind kind);

// Returns true if the launcher would read the file like these lines, so that the file can be passed
// unchanged.
bool says_the_same(const std::string& text, const std::vector<std::string>& lines);

}  // namespace zero::tool
