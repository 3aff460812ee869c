#include "tools/zero/launcher.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "zero/base/text.h"

namespace zero::tool {
namespace {

// Fit of the ranks on their cores.
struct Fit {
  std::optional<int> slots;  // the launcher's own count; unknown on other machines
  bool beyond_slots = false;
  bool crowded = false;    // more ranks than cores: a waiting rank must yield
  int cores_per_rank = 0;  // 0: leave the ranks unbound
};

bool is_elsewhere(const Host& host) {
  return !host.local;
}

int slots_on(const Host& host, const MachineFacts& machine) {
  return host.slots.value_or(host.local ? machine.cores : 0);
}

Fit fit(const LaunchRequest& request, const MachineFacts& machine) {
  const auto& hosts = request.hosts;
  const bool here = !leaves_this_machine(request, machine);
  const bool known =
      std::all_of(hosts.begin(), hosts.end(), [](auto& h) { return h.local || h.slots; });
  Fit result;
  if (known) {
    int slots = 0;
    for (const Host& host : hosts) slots += slots_on(host, machine);
    result.slots = slots;
  }
  if (hosts.empty()) result.slots = here ? std::optional(machine.cores) : machine.scheduler_slots;
  result.beyond_slots = result.slots && request.ranks > *result.slots;
  const int usable = std::min(machine.cores, machine.granted_cores);
  const bool crowded_here = std::any_of(hosts.begin(), hosts.end(), [&](auto& host) {
    return host.local && std::min(slots_on(host, machine), request.ranks) > usable;
  });
  result.crowded = result.beyond_slots || crowded_here || (here && request.ranks > usable);
  // The cores of other machines are unknown here. Under a quota or in a CPU set the first cores are
  // not reserved for this job.
  if (here && !result.crowded && machine.all_cores && machine.granted_cores >= machine.cores)
    result.cores_per_rank = machine.cores / request.ranks;
  return result;
}

void note_fit(const Fit& fit, const LaunchRequest& request, const MachineFacts& machine,
              LauncherKind kind, LaunchPlan& plan) {
  const std::string yields =
      kind == LauncherKind::open_mpi ? ", unbound, yielding while they wait" : ", unbound";
  const int usable = std::min(machine.cores, machine.granted_cores);
  if (fit.beyond_slots)
    plan.notes.push_back(count_of(request.ranks, "rank") + " on " + count_of(*fit.slots, "slot") +
                         ": oversubscribed" + yields);
  else if (fit.crowded)
    plan.notes.push_back("more ranks than the " + count_of(usable, "core") + " they may use here" +
                         yields);
  if (!machine.scheduler.empty())
    plan.notes.push_back("hosts and slots come from " +
                         (request.hosts.empty() ? machine.scheduler : "the hostfile"));
  for (const Host& host : request.hosts)
    if (!host.slots && kind == LauncherKind::open_mpi)
      plan.notes.push_back("hosts without slots, such as " + host.name +
                           ", get as many ranks as they have cores");
}

using Words = std::vector<std::string>;

std::string name_of_variable(const std::string& given) {
  return given.substr(0, given.find('='));
}

// Skips variables that the command sets already, because Open MPI refuses two values.
void add_exports(const LaunchRequest& request, bool elsewhere, LauncherKind kind, Words& command) {
  std::set<std::string> named;
  for (std::size_t i = 0; i + 1 < request.launcher_arguments.size(); ++i)
    if (request.launcher_arguments[i] == "-x")
      named.insert(name_of_variable(request.launcher_arguments[i + 1]));
  const auto add = [&](const std::string& given) {
    if (!named.insert(name_of_variable(given)).second) return;
    const std::size_t equals = given.find('=');
    // Hydra passes the whole environment on.
    if (kind == LauncherKind::open_mpi)
      command.insert(command.end(), {"-x", given});
    else if (equals != std::string::npos)
      command.insert(command.end(), {"-genv", given.substr(0, equals), given.substr(equals + 1)});
  };
  for (const std::string& given : request.exports) add(given);
  if (elsewhere && kind == LauncherKind::open_mpi)
    for (const std::string& name : request.forwarded) add(name);
}

// Open MPI cuts host names, but not addresses, at the first dot.
bool has_dotted_name(const LaunchRequest& request) {
  return std::any_of(request.hosts.begin(), request.hosts.end(), [](const Host& host) {
    return is_elsewhere(host) && host.name.find('.') != std::string::npos &&
           host.name.find_first_not_of("0123456789.") != std::string::npos;
  });
}

void append(Words& command, const Words& words) {
  command.insert(command.end(), words.begin(), words.end());
}

void add_open_mpi(const Fit& fit, const LaunchRequest& request, const MachineFacts& machine,
                  bool prrte, LaunchPlan& plan) {
  Words& command = plan.command;
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
  // Open MPI 5.0.7 (Debian 13) complains about each pair of ranks that TCP could not connect, also
  // with shared memory.
  const bool here = !leaves_this_machine(request, machine);
  const bool chosen = machine.transport_chosen ||
                      std::ranges::count(request.launcher_arguments, std::string("btl")) > 0;
  if (prrte && here && !chosen) append(command, {"--mca", "btl", "^tcp"});
  if (has_dotted_name(request))
    append(command, prrte ? Words{"--prtemca", "prte_keep_fqdn_hostnames", "1"}
                          : Words{"--mca", "orte_keep_fqdn_hostnames", "1"});
  if (here && !machine.remote_shell && !prrte) {
    append(command, {"--mca", "plm", "isolated"});
    plan.notes.push_back("no ssh or rsh here: this machine only");
  }
}

void add_hydra(const Fit& fit, Words& command) {
  append(command, {"-bind-to", fit.cores_per_rank > 0 ? "core:" + std::to_string(fit.cores_per_rank)
                                                      : std::string("none")});
}

}  // namespace

bool leaves_this_machine(const LaunchRequest& request, const MachineFacts& machine) {
  if (request.hosts.empty()) return !machine.scheduler.empty();
  return std::any_of(request.hosts.begin(), request.hosts.end(), is_elsewhere);
}

std::vector<std::string> needed_everywhere(const std::vector<std::string>& environment) {
  const std::set<std::string> paths{"PATH", "LD_LIBRARY_PATH", "PYTHONPATH"};
  std::set<std::string> names;
  for (const std::string& entry : environment) {
    const std::string name = name_of_variable(entry);
    if (name.starts_with("ZERO_") || name.starts_with("OMP_") || paths.contains(name))
      names.insert(name);
  }
  return {names.begin(), names.end()};
}

LaunchPlan plan_launch(const LaunchRequest& request, const MachineFacts& machine,
                       const Launcher& launcher) {
  const Fit ranks = fit(request, machine);
  LaunchPlan plan;
  plan.command = {launcher.path, "-n", std::to_string(request.ranks)};
  const bool hydra = launcher.kind == LauncherKind::hydra;
  if (!request.hostfile.empty())
    append(plan.command, {hydra ? "-f" : "--hostfile", request.hostfile});
  note_fit(ranks, request, machine, launcher.kind, plan);
  if (launcher.kind == LauncherKind::open_mpi)
    add_open_mpi(ranks, request, machine, launcher.major >= 5, plan);
  if (hydra) add_hydra(ranks, plan.command);
  if (launcher.kind == LauncherKind::other)
    plan.notes.push_back(launcher.path +
                         " is neither Open MPI's nor MPICH's: binding is left to its defaults");
  add_exports(request, leaves_this_machine(request, machine), launcher.kind, plan.command);
  append(plan.command, request.launcher_arguments);
  plan.command.push_back(request.program);
  append(plan.command, request.arguments);
  return plan;
}

Launcher identify_launcher(const std::string& path, std::string_view version_text) {
  Launcher launcher;
  launcher.path = path;
  // Open MPI 4 prints its own name as mpirun, and that of its launcher, OpenRTE, as mpiexec.
  std::size_t digits_at = std::string_view::npos;
  for (const std::string_view name : {"(Open MPI) ", "(OpenRTE) "})
    if (const auto at = version_text.find(name); at != std::string_view::npos)
      digits_at = at + name.size();
  if (digits_at != std::string_view::npos) {
    const char* digits = version_text.data() + digits_at;
    std::from_chars(digits, version_text.data() + version_text.size(), launcher.major);
  } else if (version_text.find("HYDRA") != std::string_view::npos) {
    launcher.kind = LauncherKind::hydra;
  } else {
    launcher.kind = LauncherKind::other;
  }
  return launcher;
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
