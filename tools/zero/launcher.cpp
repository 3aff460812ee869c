#include "tools/zero/launcher.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>

#include "zero/base/error.h"

namespace zero::tool {
namespace {

// How the ranks fit on their cores.
struct Fit {
  std::optional<int> slots;  // what the launcher will count; unknown on other machines
  bool beyond_slots = false;
  bool crowded = false;    // more ranks than cores: a waiting rank must yield
  int cores_per_rank = 0;  // 0: leave the ranks unbound
};

int slots_on(const Host& host, const MachineFacts& machine) {
  return host.slots.value_or(host.local ? machine.cores : 0);
}

Fit fit(const LaunchRequest& request, const MachineFacts& machine) {
  const auto& hosts = request.hosts;
  const bool all_local = std::all_of(hosts.begin(), hosts.end(), [](auto& h) { return h.local; });
  const bool here = all_local && (!hosts.empty() || machine.scheduler.empty());
  const bool known =
      here || (!hosts.empty() &&
               std::all_of(hosts.begin(), hosts.end(), [](auto& h) { return h.local || h.slots; }));
  Fit result;
  if (known) {
    int slots = hosts.empty() ? machine.cores : 0;
    for (const Host& host : hosts) slots += slots_on(host, machine);
    result.slots = slots;
    result.beyond_slots = request.ranks > slots;
  }
  const int usable = std::min(machine.cores, machine.granted_cores);
  const bool crowded_here = std::any_of(hosts.begin(), hosts.end(), [&](auto& host) {
    return host.local && std::min(slots_on(host, machine), request.ranks) > usable;
  });
  result.crowded = result.beyond_slots || crowded_here || (here && request.ranks > usable);
  // The cores of other machines are unknown here. Under a quota or in a CPU set the first cores are
  // not ours alone.
  if (here && !result.crowded && machine.all_cores && machine.granted_cores >= machine.cores)
    result.cores_per_rank = machine.cores / request.ranks;
  return result;
}

std::string plural(int count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

void note_fit(const Fit& fit, const LaunchRequest& request, const MachineFacts& machine,
              LauncherKind kind, LaunchPlan& plan) {
  const std::string yields =
      kind == LauncherKind::open_mpi ? ", unbound, yielding while they wait" : ", unbound";
  const int usable = std::min(machine.cores, machine.granted_cores);
  if (fit.beyond_slots)
    plan.notes.push_back(plural(request.ranks, "rank") + " on " + plural(*fit.slots, "slot") +
                         ": oversubscribed" + yields);
  else if (fit.crowded)
    plan.notes.push_back("more ranks than the " + plural(usable, "core") + " they may use here" +
                         yields);
  if (request.hosts.empty() && !machine.scheduler.empty())
    plan.notes.push_back("hosts and slots come from " + machine.scheduler);
}

using Words = std::vector<std::string>;

void append(Words& command, const Words& words) {
  command.insert(command.end(), words.begin(), words.end());
}

void add_open_mpi(const Fit& fit, const MachineFacts& machine, const Launcher& launcher, bool here,
                  LaunchPlan& plan) {
  Words& command = plan.command;
  const bool prrte = launcher.major >= 5;
  if (machine.root) append(command, {"--allow-run-as-root"});
  if (fit.beyond_slots)
    append(command, prrte ? Words{"--map-by", "slot:OVERSUBSCRIBE"} : Words{"--oversubscribe"});
  if (fit.cores_per_rank > 0)
    append(command,
           {"--map-by", "slot:PE=" + std::to_string(fit.cores_per_rank), "--bind-to", "core"});
  else
    append(command, {"--bind-to", "none"});
  if (fit.crowded) append(command, {"--mca", "mpi_yield_when_idle", "1"});
  if (!machine.cross_memory) {
    append(command, prrte ? Words{"--mca", "smsc", "^cma"}
                          : Words{"--mca", "btl_vader_single_copy_mechanism", "none"});
    plan.notes.push_back(
        "processes may not read each other's memory here (a container, or ptrace is "
        "restricted): messages are copied twice");
  }
  if (here && !machine.remote_shell && !prrte) {
    append(command, {"--mca", "plm", "isolated"});
    plan.notes.push_back("no ssh or rsh here: this machine only");
  }
}

void add_hydra(const Fit& fit, Words& command) {
  append(command, {"-bind-to", fit.cores_per_rank > 0 ? "core:" + std::to_string(fit.cores_per_rank)
                                                      : std::string("none")});
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The slots that one word of a hostfile gives, if it gives any: "slots=4", or Hydra's ":4".
std::optional<int> positive(const std::string& digits, int line) {
  int value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end || value < 1)
    throw ConfigError("hostfile line " + std::to_string(line) + ": \"" + digits +
                      "\" is not a number of slots; expected 1 or more");
  return value;
}

Host parse_host(std::istringstream& words, LauncherKind kind, int line) {
  Host host;
  words >> host.name;
  const auto colon = host.name.find(':');
  const bool one_colon =
      colon != std::string::npos && host.name.find(':', colon + 1) == std::string::npos;
  if (one_colon && kind == LauncherKind::open_mpi)
    throw ConfigError("hostfile line " + std::to_string(line) + ": Open MPI writes slots as \"" +
                      host.name.substr(0, colon) + " slots=" + host.name.substr(colon + 1) + "\"");
  if (one_colon) {
    host.slots = positive(host.name.substr(colon + 1), line);
    host.name.resize(colon);
  }
  for (std::string word; words >> word;) {
    if (lower(word).rfind("slots=", 0) != 0) continue;
    if (kind != LauncherKind::open_mpi)
      throw ConfigError("hostfile line " + std::to_string(line) +
                        ": this launcher writes slots as \"" + host.name + ":" + word.substr(6) +
                        "\"");
    host.slots = positive(word.substr(6), line);
  }
  return host;
}

}  // namespace

LaunchPlan plan_launch(const LaunchRequest& request, const MachineFacts& machine,
                       const Launcher& launcher) {
  const Fit ranks = fit(request, machine);
  const bool here = request.hosts.empty() && machine.scheduler.empty();
  LaunchPlan plan;
  plan.command = {launcher.path, "-n", std::to_string(request.ranks)};
  const bool hydra = launcher.kind == LauncherKind::hydra;
  if (!request.hostfile.empty())
    append(plan.command, {hydra ? "-f" : "--hostfile", request.hostfile});
  note_fit(ranks, request, machine, launcher.kind, plan);
  if (launcher.kind == LauncherKind::open_mpi) add_open_mpi(ranks, machine, launcher, here, plan);
  if (hydra) add_hydra(ranks, plan.command);
  if (launcher.kind == LauncherKind::other)
    plan.notes.push_back(launcher.path +
                         " is neither Open MPI's nor MPICH's: binding is left to its defaults");
  append(plan.command, request.launcher_arguments);
  plan.command.push_back(request.program);
  append(plan.command, request.arguments);
  return plan;
}

Launcher identify_launcher(const std::string& path, std::string_view version_text) {
  Launcher launcher;
  launcher.path = path;
  const std::string_view open_mpi = "(Open MPI) ";
  if (const auto at = version_text.find(open_mpi); at != std::string_view::npos) {
    const char* digits = version_text.data() + at + open_mpi.size();
    std::from_chars(digits, version_text.data() + version_text.size(), launcher.major);
  } else if (version_text.find("HYDRA") != std::string_view::npos) {
    launcher.kind = LauncherKind::hydra;
  } else {
    launcher.kind = LauncherKind::other;
  }
  return launcher;
}

std::vector<Host> parse_hostfile(const std::string& text, LauncherKind kind,
                                 const std::vector<std::string>& local_names) {
  std::vector<Host> hosts;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line.resize(std::min(line.size(), line.find('#')));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::istringstream words(line);
    Host host = parse_host(words, kind, number);
    const std::string name = host.name.substr(host.name.find('@') + 1);
    host.local = std::find(local_names.begin(), local_names.end(), name) != local_names.end();
    hosts.push_back(host);
  }
  if (hosts.empty()) throw ConfigError("the hostfile names no host");
  return hosts;
}

std::string quote_command(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) {
    if (!line.empty()) line += ' ';
    const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return std::isalnum(c) ||
             std::string_view("-_./=:,+@%").find(char(c)) != std::string_view::npos;
    });
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace zero::tool
