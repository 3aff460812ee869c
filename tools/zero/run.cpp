// zero run: prints the mpirun line that fits this machine, and runs it.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "config_schemas/keys.h"
#include "tools/zero/commands.h"
#include "tools/zero/launcher.h"
#include "tools/zero/machine.h"
#include "tools/zero/process.h"
#include "tools/zero/supervise.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/base/run_marks.h"

namespace zero::tool {
namespace {

class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: zero run -n N [OPTIONS] PROGRAM [ARGS...]\n";
  }
};

struct RunOptions {
  LaunchRequest request;
  double start_limit = 0;  // seconds; 0: the program's own
  std::string launcher;
  bool dry_run = false;
  bool verbose = false;
};

// Ranks of ranks are never meant: each rank would start a job of its own.
void refuse_nesting() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* ranks = std::getenv(variable);
    if (ranks != nullptr && std::atoi(ranks) > 1)
      throw TopologyError(std::string("this is already a rank of an MPI job (") + variable + "=" +
                          ranks +
                          "): start the program itself there, or `zero run` outside of the job");
  }
}

void check_program(const std::string& program) {
  if (program.rfind('-', 0) == 0)
    throw ConfigError("unknown option " + program +
                      " before the program's name; see zero run --help");
  if (!find_in_path(program).empty()) return;
  if (program.find('/') == std::string::npos) {
    const std::string hint = is_program("./" + program) ? "; ./" + program + " exists" : "";
    throw ConfigError("program " + program + " is not in PATH" + hint);
  }
  std::ifstream file(program);
  throw ConfigError(program + (file ? " is not an executable file" : " does not exist"));
}

std::string find_launcher(const std::string& wanted) {
  if (!wanted.empty()) {
    if (find_in_path(wanted).empty()) throw TopologyError("launcher " + wanted + " not found");
    return wanted;
  }
  for (const char* name : {"mpirun", "mpiexec"})
    if (!find_in_path(name).empty()) return name;
  throw TopologyError(
      "no mpirun and no mpiexec in PATH: install Open MPI (apt install openmpi-bin) or MPICH, or "
      "load "
      "the cluster's MPI module");
}

Launcher ask_launcher(const std::string& path) {
  const Output version = capture({path, "--version"});
  if (version.exit_code != 0)
    throw TopologyError(path + " --version failed with code " + std::to_string(version.exit_code) +
                        (version.text.empty() ? "" : ":\n" + version.text));
  return identify_launcher(path, version.text);
}

std::string read_file(const std::string& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  if (!stream || !(text << stream.rdbuf()))
    throw ConfigError("hostfile " + file + " is missing, unreadable or empty");
  return text.str();
}

// Under Open MPI, ranks on other machines have only those variables that are named.
std::vector<std::string> with_marks(std::vector<std::string> command, bool elsewhere) {
  setenv(run_marks_variable, "1", 1);
  if (elsewhere) command.insert(command.begin() + 1, {"-x", run_marks_variable});
  return command;
}

void run(RunOptions options) {
  LaunchRequest& request = options.request;
  refuse_nesting();
  check_program(request.program);
  const Launcher launcher = ask_launcher(find_launcher(options.launcher));
  if (!request.hostfile.empty())
    request.hosts = parse_hostfile(read_file(request.hostfile), launcher.kind, local_host_names());
  const MachineFacts machine = read_machine();
  const bool elsewhere = !request.hosts.empty() || !machine.scheduler.empty();
  if (options.start_limit > 0)
    setenv("ZERO_START_LIMIT", shortest_text(options.start_limit).c_str(), 1);
  if (std::getenv("ZERO_START_LIMIT") != nullptr && elsewhere &&
      launcher.kind == LauncherKind::open_mpi)
    request.launcher_arguments.insert(request.launcher_arguments.begin(),
                                      {"-x", "ZERO_START_LIMIT"});
  const LaunchPlan plan = plan_launch(request, machine, launcher);
  for (const std::string& note : plan.notes) std::fprintf(stderr, "zero run: %s\n", note.c_str());
  std::fprintf(options.dry_run ? stdout : stderr, "%s\n", quote_command(plan.command).c_str());
  if (options.dry_run) return;
  std::fflush(nullptr);
  LauncherLines lines;
  if (launcher.kind == LauncherKind::open_mpi && !options.verbose)
    supervise(with_marks(plan.command, elsewhere), request.ranks, lines);
  else
    become(plan.command);
  throw TopologyError("cannot start " + plan.command.front() + ": " + std::strerror(errno));
}

}  // namespace

void add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command =
      app.add_subcommand("run", "Start a program on N ranks with the right mpirun line");
  command->formatter(std::make_shared<RunFormatter>());
  command->footer(
      "What follows PROGRAM is the program's own. The line is printed before it is executed;\n"
      "Open MPI's parameters can also be set as OMPI_MCA_name=value in the environment.");
  command->add_option("-n,--ranks", options->request.ranks, "Number of ranks")
      ->required()
      ->check(CLI::Range(1, config_schemas::most_ranks));
  command->add_option("--hostfile", options->request.hostfile,
                      "Hosts, one a line (Open MPI: \"node1 slots=8\"; MPICH: \"node1:8\")");
  command->add_option("--launcher", options->launcher,
                      "Launcher to use (default: mpirun, else mpiexec)");
  command
      ->add_option(
          "--launcher-arg", options->request.launcher_arguments,
          "One more argument for the launcher; may be repeated, as --launcher-arg=--verbose")
      ->allow_extra_args(false);
  command
      ->add_option("--start-limit", options->start_limit,
                   "Seconds until all ranks have come up (ZERO_START_LIMIT; default: 120)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--dry-run", options->dry_run, "Only print the line");
  command->add_flag("--verbose", options->verbose,
                    "Show what Open MPI itself says of a failure, also where a rank has said why");
  // The first word that is not ours is the program; its own options stay untouched behind it.
  command->prefix_command();
  command->callback([options, command] {
    const std::vector<std::string> rest = command->remaining();
    if (rest.empty()) throw ConfigError("no program given; see zero run --help");
    options->request.program = rest.front();
    options->request.arguments.assign(rest.begin() + 1, rest.end());
    run(*options);
  });
}

}  // namespace zero::tool
