// zero run: prints and runs the mpirun line that fits this machine.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "tools/options/command_line.h"
#include "tools/options/help_formatter.h"
#include "tools/options/number_options.h"
#include "tools/zero/commands.h"
#include "tools/zero/host_lookup.h"
#include "tools/zero/job_command.h"
#include "tools/zero/launcher.h"
#include "tools/zero/launcher_lookup.h"
#include "tools/zero/machine.h"
#include "tools/zero/process.h"
#include "tools/zero/program_config.h"
#include "tools/zero/restarts.h"
#include "tools/zero/scheduler.h"
#include "tools/zero/supervise.h"
#include "tools/zero/temporary_directory.h"
#include "zero/base/error.h"
#include "zero/base/input_file.h"
#include "zero/base/number_text.h"

namespace zero::tool {
namespace {

struct RunOptions {
  LaunchRequest request;
  double start_limit = 0;  // seconds; 0: the program's own
  double stop_limit = 0;   // seconds; 0: the default
  std::string launcher;
  int min_ranks = 0;            // 0: that of -n
  std::optional<int> restarts;  // none: a failure ends the run
  std::string elastic;          // "M:N"
  bool no_growth = false;
  bool dry_run = false;
  bool verbose = false;
};

constexpr int elastic_restarts = 10;  // of --elastic, without --restarts

// Returns true if ranks are started by ssh. Hosts may have separate names under another method.
bool starts_by_ssh(const LaunchRequest& request, const std::string& scheduler) {
  for (const char* variable : {"OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_rsh_agent",
                               "OMPI_MCA_pls_rsh_agent", "OMPI_MCA_plm", "PRTE_MCA_plm_ssh_agent",
                               "PRTE_MCA_plm", "HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP"})
    if (std::getenv(variable) != nullptr) return false;
  const auto chooses = [](const std::string& word) {
    return word.find("rsh_agent") != std::string::npos ||
           word.find("ssh_agent") != std::string::npos || word == "plm" ||
           word.find("-launcher") != std::string::npos;
  };
  return scheduler.empty() && std::ranges::none_of(request.launcher_arguments, chooses);
}

// Returns lines to pass instead of the file if the launcher would read the file differently from
// the plan.
std::vector<std::string> read_hosts(LaunchRequest& request, const MachineFacts& machine,
                                    LauncherKind kind, bool dry_run) {
  if (request.hostfile.empty()) return {};
  const bool by_ssh = starts_by_ssh(request, machine.scheduler);
  const std::string text =
      read_input_file({request.hostfile, "hostfile " + request.hostfile, 16, "a list of hosts"});
  // A plan may be for a cluster that is not reachable from here.
  const auto look_up = [&](const std::string& name) {
    HostPlace place = place_of(name, by_ssh);
    if (!dry_run || place.problem.empty()) return place;
    std::fprintf(stderr,
                 "zero run: host %s cannot be found here: %s; a run would end with code %d\n",
                 name.c_str(), place.problem.c_str(), TopologyError::code);
    return HostPlace{};
  };
  request.hosts = parse_hostfile({text, request.hostfile, kind, machine.cores}, look_up);
  const auto far = std::ranges::find(request.hosts, false, &Host::local);
  if (by_ssh && !machine.remote_shell && !dry_run && far != request.hosts.end())
    throw TopologyError("host " + far->name +
                        " is another machine, and there is no ssh here to start ranks on it: "
                        "install ssh (apt install openssh-client)");
  std::vector<std::string> lines = hostfile_lines(request.hosts, kind);
  return says_the_same(text, lines) ? std::vector<std::string>() : lines;
}

void check_exports(const LaunchRequest& request) {
  for (const std::string& given : request.exports)
    if (given.empty() || given.front() == '=' ||
        (given.find('=') == std::string::npos && std::getenv(given.c_str()) == nullptr))
      throw ConfigError(
          "-x " + given + ": " +
          (given.empty() || given.front() == '='
               ? "expected NAME, or NAME=VALUE"
               : "this variable is not set here; expected one that is, or NAME=VALUE"));
}

void add_allocation(LaunchRequest& request, LauncherKind kind, MachineFacts& machine) {
  const bool chosen =
      std::getenv("OMPI_MCA_plm") != nullptr ||
      std::ranges::find(request.launcher_arguments, "plm") != request.launcher_arguments.end();
  const Scheduler scheduler = read_scheduler(kind != LauncherKind::other && !chosen);
  machine.scheduler = scheduler.name;
  machine.scheduler_slots = scheduler.slots;
  if (request.hostfile.empty()) request.hostfile = scheduler.hostfile;
}

// Reads "M:N".
void read_elastic(const std::string& text, RunOptions& options) {
  const std::size_t colon = text.find(':');
  int least = 0, most = 0;
  const auto read = [&](std::size_t begin, std::size_t end, int& number) {
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, number);
    return error == std::errc() && stop == text.data() + end && number >= 1;
  };
  if (colon == std::string::npos || !read(0, colon, least) || !read(colon + 1, text.size(), most) ||
      least > most)
    throw ConfigError("--elastic " + text +
                      ": expected MIN:MAX, numbers of ranks from 1 on, such as 2:8");
  if (options.request.ranks > 0 || options.min_ranks > 0)
    throw ConfigError("--elastic " + text + " is --min-ranks " + std::to_string(least) + " -n " +
                      std::to_string(most) + ": give either of them");
  options.request.ranks = most;
  options.min_ranks = least;
  if (!options.restarts) options.restarts = elastic_restarts;
}

void check_restarts(RunOptions& options) {
  if (!options.elastic.empty()) read_elastic(options.elastic, options);
  if (options.request.ranks == 0)
    throw ConfigError(
        "-n is missing: the number of ranks, before the program; see zero run --help");
  if (options.min_ranks > 0 && !options.restarts)
    throw ConfigError("--min-ranks is for restarts: give --restarts K too");
  if (options.min_ranks == 0) options.min_ranks = options.request.ranks;
  if (options.min_ranks > options.request.ranks)
    throw ConfigError("--min-ranks " + std::to_string(options.min_ranks) + " is above -n " +
                      std::to_string(options.request.ranks));
  // Ranks are matched with slots in the order of the hosts.
  for (const std::string& word : options.request.launcher_arguments)
    for (const std::string_view other : {"map-by", "rank-by", "rankfile", "-rf", "host"})
      if (options.restarts && word.starts_with('-') && word.find(other) != std::string::npos)
        throw ConfigError("--launcher-arg " + word +
                          ": --restarts places ranks itself, in the order of the hosts; give them "
                          "with --hostfile");
}

// Hosts are known by name if any may be lost.
void list_hosts(LaunchRequest& request, const MachineFacts& machine) {
  if (!request.hosts.empty() || machine.scheduler != "Slurm") return;
  request.hosts = slurm_hosts([](const std::string& name) { return place_of(name, false); });
}

// The ranks' own limit, unless the program sets another; a save may take as long as the config
// permits.
JobLimits limits_of(const RunOptions& options) {
  constexpr double after_save = 60;
  const auto whole_seconds = [](double time) {
    return std::chrono::seconds(static_cast<std::int64_t>(std::ceil(std::min(time, 1e9))));
  };
  JobLimits limits;
  const char* start = std::getenv("ZERO_START_LIMIT");
  if (const double time = start != nullptr ? std::atof(start) : 0; time > 0)
    limits.start = limits.meet = whole_seconds(time);
  limits.stop =
      std::max(limits.stop, whole_seconds(grace_of(options.request.arguments) + after_save));
  if (options.stop_limit > 0) limits.stop = whole_seconds(options.stop_limit);
  return limits;
}

[[noreturn]] void restart(RunOptions& options, MachineFacts machine, const Launcher& launcher,
                          const JobSignals& signals) {
  if (launcher.kind != LauncherKind::open_mpi)
    throw TopologyError("--restarts needs Open MPI's mpirun, not " + launcher.path);
  list_hosts(options.request, machine);
  for (Host& host : options.request.hosts)
    if (!host.slots)
      throw ConfigError("hostfile " + options.request.hostfile +
                        ": --restarts needs the slots of " + host.name + "; expected \"" +
                        host.name + " slots=N\"");
  if (options.request.hosts.empty()) options.request.hostfile.clear();
  run_with_restarts({options.request,
                     std::move(machine),
                     launcher,
                     {options.request.ranks, options.min_ranks, *options.restarts},
                     limits_of(options),
                     !options.no_growth,
                     options.verbose},
                    signals);
}

void run(RunOptions options) {
  LaunchRequest& request = options.request;
  const JobSignals signals;  // a signal from now on gets an answer
  refuse_nesting();
  check_program(request.program);
  check_restarts(options);
  const Launcher launcher = find_launcher(options.launcher);
  MachineFacts machine = read_machine();
  add_allocation(request, launcher.kind, machine);
  const std::vector<std::string> hosts =
      read_hosts(request, machine, launcher.kind, options.dry_run);
  if (options.start_limit > 0)
    setenv("ZERO_START_LIMIT", shortest_text(options.start_limit).c_str(), 1);
  check_exports(request);
  if (const std::string problem = problem_of_temporary_directory();
      !problem.empty() && !options.dry_run)
    throw TopologyError(problem + "; " + temporary_advice);
  if (options.restarts && !options.dry_run) restart(options, std::move(machine), launcher, signals);
  JobCommand command(request, machine, launcher, hosts);
  for (const std::string& note : command.notes())
    std::fprintf(stderr, "zero run: %s\n", note.c_str());
  std::fprintf(options.dry_run ? stdout : stderr, "%s\n", command.text().c_str());
  if (options.dry_run) return;
  std::fflush(nullptr);
  if (launcher.kind == LauncherKind::open_mpi) {
    LauncherLines lines(options.verbose);
    JobCompanion alone;
    Job job(signals, limits_of(options), alone);
    if (const auto end = job.run({command.words(), request.ranks, lines})) end_like(*end, signals);
  } else {
    signals.restore();
    become(command.words());
  }
  throw TopologyError("cannot start " + launcher.path + ": " + std::strerror(errno));
}

}  // namespace

void add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  options->request.ranks = 0;
  CLI::App* command =
      app.add_subcommand("run", "Start a program on N ranks with the right mpirun line");
  command->formatter(std::make_shared<HelpFormatter>("zero run -n N [OPTIONS] PROGRAM [ARGS...]"));
  command->footer(
      "Arguments after PROGRAM are the program's own. The line is printed before it is executed;\n"
      "Open MPI's parameters can also be set as OMPI_MCA_name=value in the environment.");
  const auto in_group = [command](const char* name) { command->option_defaults()->group(name); };
  in_group("Ranks and launcher");
  add_number(*command, "-n,--ranks", options->request.ranks, "Number of ranks");
  command->add_option("--hostfile", options->request.hostfile,
                      "Hosts, one a line (Open MPI: \"node1 slots=8\"; MPICH: \"node1:8\"), or one "
                      "line for each rank");
  command->add_option("--launcher", options->launcher,
                      "Launcher to use (default: mpirun, else mpiexec)");
  command
      ->add_option(
          "--launcher-arg", options->request.launcher_arguments,
          "One more argument for the launcher; may be repeated, as --launcher-arg=--verbose")
      ->allow_extra_args(false);
  command
      ->add_option(
          "-x", options->request.exports,
          "A variable for ranks on other hosts, NAME or NAME=VALUE; may be repeated. ZERO_*, "
          "OMP_*, PATH, LD_LIBRARY_PATH and PYTHONPATH need no -x")
      ->allow_extra_args(false);
  in_group("Failures and signals");
  add_number(*command, "--start-limit", options->start_limit,
             "Seconds until all ranks have come up (ZERO_START_LIMIT; default: 120)");
  add_number(*command, "--stop-limit", options->stop_limit,
             "Seconds from a signal that asks the ranks to save and stop until they are ended "
             "(default: 120, or zero_core.preempt_grace_s and a minute if that is more)");
  add_number(*command, "--restarts", options->restarts,
             "Start again after a failure, from the newest checkpoint, at most N times");
  add_number(*command, "--min-ranks", options->min_ranks,
             "With --restarts: go on with as few ranks as this, if slots are lost (default: -n)");
  command->add_option(
      "--elastic", options->elastic,
      "MIN:MAX, the same as --min-ranks MIN -n MAX --restarts " + std::to_string(elastic_restarts));
  command->add_flag("--no-growth", options->no_growth,
                    "With --min-ranks: do not stop at a save to use hosts that answer again");
  in_group("Output");
  command->add_flag("--dry-run", options->dry_run, "Only print the line");
  command->add_flag(
      "--verbose", options->verbose,
      "Show Open MPI's own lines on a failure, even if a rank has reported the cause");
  // The first word that is not ours is the program; the program's options follow unchanged.
  command->prefix_command();
  command->callback([options, command] {
    const std::vector<std::string> rest = program_words(*command);
    options->request.program = rest.front();
    options->request.arguments.assign(rest.begin() + 1, rest.end());
    run(*options);
  });
}

}  // namespace zero::tool
