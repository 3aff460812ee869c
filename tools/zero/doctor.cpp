// zero doctor: what this host, or all hosts of a job and the links between them, offer to a
// training run, and what will hurt it.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tools/doctor/report.h"
#include "tools/options/number_options.h"
#include "tools/zero/commands.h"
#include "tools/zero/process.h"

namespace zero::tool {
namespace {

struct DoctorOptions {
  std::vector<std::string> directories;
  int ranks = 0;  // to start; 0: none
  std::string hostfile;
  bool json = false;
};

std::vector<std::string> ranks_command(const DoctorOptions& options) {
  std::vector<std::string> command = {installed_program("zero_doctor_ranks")};
  if (!is_program(command[0]))
    throw ConfigError("ranks are examined by " + command[0] +
                      ", which this installation lacks: build ZeroCore with MPI");
  for (const std::string& directory : options.directories)
    command.insert(command.end(), {"--dir", directory});
  return command;
}

std::string report_of_ranks(const DoctorOptions& options) {
  std::vector<std::string> command = ranks_command(options);
  command.emplace_back("--one-line");
  return result_of({command, options.ranks, options.hostfile, "{\"zero_doctor\""});
}

// Becomes a rank if a launcher has started this process.
void join_ranks(const DoctorOptions& options) {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr && std::getenv("PMI_SIZE") == nullptr &&
      std::getenv("PMIX_RANK") == nullptr && std::getenv("TORCHELASTIC_RUN_ID") == nullptr)
    return;
  if (options.ranks > 0)
    throw ConfigError(
        "-n starts ranks, and a launcher has started this process already: "
        "leave one of the two out");
  std::vector<std::string> command = ranks_command(options);
  if (options.json) command.emplace_back("--json");
  become(command);
  throw TopologyError(command[0] + ": " + std::strerror(errno));
}

void run_doctor(const DoctorOptions& options) {
  join_ranks(options);
  const std::string report =
      options.ranks > 0
          ? report_of_ranks(options)
          : doctor::report_of({doctor::host_report(doctor::read_host(options.directories))}, {});
  std::fputs((options.json ? doctor::indented(report) : doctor::text_of(report)).c_str(), stdout);
}

}  // namespace

void add_doctor(CLI::App& app) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand("doctor",
                                         "Report the resources of this host, or of each host of a "
                                         "job, and problems for a training run");
  command->add_option(
      "--dir", options->directories,
      "A directory for checkpoints or offload, tried with a small file; may repeat");
  add_number(*command, "-n,--ranks", options->ranks,
             "Start this many ranks, read each of their hosts, and measure the links between them");
  command->add_option("--hostfile", options->hostfile, "With -n: hosts, as for zero run");
  command->add_flag("--json", options->json, "One JSON object, for other programs and bug reports");
  command->footer(
      "Exit code 0 whatever is found; 10 for a wrong command line, 11 if ranks do not start.");
  command->callback([options] {
    if (options->ranks == 0 && !options->hostfile.empty())
      throw ConfigError("--hostfile: needs -n, the number of ranks that measure links");
    run_doctor(*options);
  });
}

}  // namespace zero::tool
