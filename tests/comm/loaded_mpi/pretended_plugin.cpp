// A plugin that prints whose functions of MPI it has, and for which launcher it was chosen.
#include <array>
#include <cstdio>

#include "comm/loaded_mpi/plugin.h"

extern "C" int MPI_Get_library_version(char* text, int* length);

extern "C" __attribute__((visibility("default"))) zero::comm::Bootstrap* zerocore_open_mpi(
    int&, char**&, const zero::comm::Launcher& launcher, const zero::comm::WorldOptions&,
    const zero::comm::StartProblem&) {
  std::array<char, 100> library{};
  int length = 0;
  MPI_Get_library_version(library.data(), &length);
  std::printf("plugin of " PRETENDED ", library of %s, %d ranks of %s\n", library.data(),
              launcher.ranks, launcher.variable.c_str());
  return nullptr;
}
