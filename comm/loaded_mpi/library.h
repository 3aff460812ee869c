// The MPI libraries found by a program that loads MPI on demand.
#pragma once

#include <string>
#include <vector>

namespace zero::comm {

struct FoundMpi {
  std::string name;     // of the binary interface: "Open MPI" or "MPICH"
  std::string version;  // the library's own text; empty: there is a problem
  std::string path;     // of the library
  std::string problem;  // why ranks cannot use MPI
};

// Looks for a library of each interface: in these folders, then where the linker looks. Loads the
// libraries, so call it only in a process that uses no MPI.
std::vector<FoundMpi> find_mpi(const std::vector<std::string>& folders);

}  // namespace zero::comm
