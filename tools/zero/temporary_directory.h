// The directory of launchers' files and sockets: Open MPI hangs if the directory is full.
#pragma once

#include <cstdint>
#include <string>

namespace zero::tool {

// $TMPDIR, or /tmp.
std::string temporary_directory();

// Tries to write 4 MiB there. Returns why that fails, or "".
std::string problem_of_temporary_directory();

inline constexpr const char* temporary_advice =
    "launchers keep their files there, and Open MPI hangs without: free space there, or set TMPDIR "
    "to "
    "another directory";

}  // namespace zero::tool
