// The functions of comm/mpi/mpi_bootstrap.h for a program that is not linked with MPI: ranks that
// an MPI launcher has not started need none.
#include <dlfcn.h>

#include <string>

#include "comm/loaded_mpi/plugin.h"
#include "zero/base/error.h"

namespace zero::comm {
namespace {

// The plugin is in the folder of the file that has this code.
std::string plugin_path() {
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&mpi_initialized), &own) == 0 ||
      own.dli_fname == nullptr)
    return plugin_file;
  const std::string path = own.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + plugin_file;
}

}  // namespace

// The program may have done it, through a library of its own, as mpi4py does.
bool mpi_initialized() {
  for (const char* name : {"libmpi.so.40", "libmpi.so.12"}) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    int begun = 0;
    using Initialized = int(int*);
    if (auto* ask = reinterpret_cast<Initialized*>(dlsym(library, "MPI_Initialized"))) ask(&begun);
    dlclose(library);
    if (begun != 0) return true;
  }
  return false;
}

std::unique_ptr<Bootstrap> create_mpi_bootstrap(int& argc, char**& argv, const Launcher& launcher,
                                                const WorldOptions& options,
                                                const StartProblem& problem) {
  void* plugin = dlopen(plugin_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  void* open = plugin == nullptr ? nullptr : dlsym(plugin, plugin_function);
  if (open == nullptr) {
    const char* reason = dlerror();
    throw TopologyError((launcher.found() ? "an MPI launcher has started this process (" +
                                                launcher.variable + " is set)"
                                          : std::string("MPI is asked for")) +
                        ", and MPI cannot be loaded: " + (reason != nullptr ? reason : "") +
                        "; install the MPI that this package was built with, or start the ranks "
                        "with torchrun");
  }
  return std::unique_ptr<Bootstrap>(
      reinterpret_cast<OpenMpiBootstrap*>(open)(argc, argv, launcher, options, problem));
}

}  // namespace zero::comm
