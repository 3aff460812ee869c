// Loads MPI as the Python package does, and prints which one was loaded, or the error.
#include <cstdio>

#include "comm/mpi/mpi_bootstrap.h"
#include "zero/base/error.h"

int main(int argc, char** argv) {
  using namespace zero::comm;
  try {
    create_mpi_bootstrap(argc, argv, find_launcher(), {}, {});
  } catch (const zero::Error& error) {
    std::printf("%s\n", error.what());
    return error.exit_code();
  }
}
