// The functions of comm/mpi/mpi_bootstrap.h for a program that is not linked with MPI: ranks that
// an MPI launcher has not started need no MPI.
//
// MPI's functions have the same names in all libraries, but types and constants differ between two
// binary interfaces: that of Open MPI, and that of MPICH, Intel MPI and MVAPICH. For each there is
// a plugin, comm/mpi compiled against the headers of that interface. Plugins are linked with no
// library: the loader makes the functions of the launcher's own library visible first.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "comm/loaded_mpi/library.h"
#include "comm/loaded_mpi/plugin.h"
#include "zero/base/error.h"

namespace zero::comm {
namespace {

namespace fs = std::filesystem;

struct MpiInterface {
  const char* name;
  const char* plugin_file;
  std::vector<const char*> libraries;  // the names by which programs link it
};

const MpiInterface& open_mpi() {
  static const MpiInterface own{"Open MPI", "libzerocore_openmpi.so", {"libmpi.so.40"}};
  return own;
}

// Debian's library has the second name.
const MpiInterface& mpich() {
  static const MpiInterface own{
      "MPICH", "libzerocore_mpich.so", {"libmpi.so.12", "libmpich.so.12"}};
  return own;
}

// Returns the plugin's path: the folder is that of the file with this code.
std::string plugin_path(const MpiInterface& interface) {
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&mpi_initialized), &own) == 0 ||
      own.dli_fname == nullptr)
    return interface.plugin_file;
  return fs::path(own.dli_fname).replace_filename(interface.plugin_file);
}

// Returns the library if this process has loaded it, as mpi4py does. Adds the flags to the library.
void* loaded_library(const MpiInterface& interface, int flags = RTLD_LAZY) {
  for (const char* name : interface.libraries)
    if (void* library = dlopen(name, flags | RTLD_NOLOAD)) return library;
  return nullptr;
}

// Loads the library; null: `problem` has the reasons. flags: dlopen()'s.
void* load_library(const MpiInterface& interface, const std::vector<std::string>& folders,
                   int flags, std::string& problem) {
  if (void* library = loaded_library(interface, flags)) return library;
  std::vector<std::string> paths;
  for (const std::string& folder : folders)
    for (const char* name : interface.libraries)
      if (const fs::path path = fs::path(folder) / name; access(path.c_str(), R_OK) == 0)
        paths.push_back(path);
  paths.insert(paths.end(), interface.libraries.begin(), interface.libraries.end());
  for (const std::string& path : paths) {
    if (void* library = dlopen(path.c_str(), flags)) return library;
    problem += (problem.empty() ? "" : "; ") + std::string(dlerror());
  }
  return nullptr;
}

// Returns the folders of libraries that belong to the launcher, an ancestor of this process: an
// mpirun outside of /usr has a library that the linker may not find.
std::vector<std::string> launcher_folders() {
  std::vector<std::string> folders;
  for (long process = getppid(); process > 1;) {
    const fs::path files = fs::path("/proc") / std::to_string(process);
    std::error_code unreadable;
    const fs::path program = fs::read_symlink(files / "exe", unreadable);
    const std::string name = program.filename();
    constexpr std::array launchers{"mpirun", "mpiexec", "orte", "prte", "hydra_"};
    if (std::ranges::any_of(launchers, [&](const char* start) { return name.starts_with(start); }))
      for (const char* folder : {"lib", "lib64"})
        folders.push_back(program.parent_path().parent_path() / folder);
    // The fourth word is the parent; the second, a name in parentheses, may have blanks.
    std::ifstream file(files / "stat");
    std::string line;
    std::getline(file, line);
    const auto name_end = line.rfind(')');
    if (name_end == std::string::npos || line.size() < name_end + 4) break;
    process = std::atol(line.c_str() + name_end + 4);
  }
  return folders;
}

// Returns the interfaces that the ranks may use, the likeliest first.
std::vector<const MpiInterface*> interfaces_for(const Launcher& launcher) {
  for (const MpiInterface* interface : {&open_mpi(), &mpich()})
    if (loaded_library(*interface) != nullptr) return {interface};
  if (launcher.variable == "OMPI_COMM_WORLD_SIZE") return {&open_mpi()};
  // Set by Hydra, or by Slurm for any MPI that was built for Slurm.
  if (launcher.variable == "PMI_SIZE" && std::getenv("SLURM_STEP_ID") == nullptr) return {&mpich()};
  if (launcher.variable == "PMI_SIZE") return {&mpich(), &open_mpi()};
  return {&open_mpi(), &mpich()};
}

// Returns the plugin's function; null: `problem` has the reason.
OpenMpiBootstrap* load_plugin(const MpiInterface& interface, std::string& problem) {
  const std::string path = plugin_path(interface);
  std::string reason;
  if (access(path.c_str(), R_OK) != 0)
    reason = "this package was built without the headers of " + std::string(interface.name);
  else if (load_library(interface, launcher_folders(), RTLD_NOW | RTLD_GLOBAL, reason) != nullptr) {
    void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* function = plugin == nullptr ? nullptr : dlsym(plugin, plugin_function);
    if (function != nullptr) return reinterpret_cast<OpenMpiBootstrap*>(function);
    reason = dlerror();
  }
  problem += (problem.empty() ? "" : "; ") + reason;
  return nullptr;
}

FoundMpi find_mpi(const MpiInterface& interface, const std::vector<std::string>& folders) {
  FoundMpi found{.name = interface.name, .version = {}, .path = {}, .problem = {}};
  if (access(plugin_path(interface).c_str(), R_OK) != 0)
    found.problem = "not in this build";
  else if (void* library =
               load_library(interface, folders, RTLD_LAZY | RTLD_LOCAL, found.problem)) {
    using GetVersion = int(char*, int*);
    void* function = dlsym(library, "MPI_Get_library_version");
    Dl_info info{};
    if (function == nullptr || dladdr(function, &info) == 0) {
      found.problem = "a library of MPI has no MPI_Get_library_version";
      return found;
    }
    std::array<char, 8192> text{};  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH, the larger value
    int length = 0;
    reinterpret_cast<GetVersion*>(function)(text.data(), &length);
    found.version = text.data();
    found.path = info.dli_fname;
    found.problem.clear();
  }
  return found;
}

}  // namespace

// The program may have initialized MPI, through another library.
bool mpi_initialized() {
  for (const MpiInterface* interface : {&open_mpi(), &mpich()}) {
    void* library = loaded_library(*interface);
    if (library == nullptr) continue;
    int begun = 0;
    using Initialized = int(int*);
    if (auto* ask = reinterpret_cast<Initialized*>(dlsym(library, "MPI_Initialized"))) ask(&begun);
    if (begun != 0) return true;
  }
  return false;
}

std::unique_ptr<Bootstrap> create_mpi_bootstrap(int& argc, char**& argv, const Launcher& launcher,
                                                const WorldOptions& options,
                                                const StartProblem& start_problem) {
  std::string problem;
  for (const MpiInterface* interface : interfaces_for(launcher))
    if (OpenMpiBootstrap* open = load_plugin(*interface, problem))
      return std::unique_ptr<Bootstrap>(open(argc, argv, launcher, options, start_problem));
  throw TopologyError((launcher.found() ? "an MPI launcher has started this process (" +
                                              launcher.variable + " is set)"
                                        : std::string("MPI is asked for")) +
                      ", and MPI cannot be loaded: " + problem +
                      "; install the launcher's MPI, or start the ranks with torchrun");
}

std::vector<FoundMpi> find_mpi(const std::vector<std::string>& folders) {
  return {find_mpi(open_mpi(), folders), find_mpi(mpich(), folders)};
}

}  // namespace zero::comm
