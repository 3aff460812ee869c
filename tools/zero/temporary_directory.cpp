#include "tools/zero/temporary_directory.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace zero::tool {
namespace {

constexpr std::int64_t needed_bytes = std::int64_t{4} << 20;

// Returns an errno. Reserved space counts on every file system, unlike what statvfs() returns.
int try_to_write(const std::string& directory) {
  std::string name = directory + "/.zero-run-XXXXXX";
  const int file = mkstemp(name.data());
  if (file < 0) return errno;
  const int problem = posix_fallocate(file, 0, needed_bytes);
  close(file);
  unlink(name.c_str());
  return problem == EOPNOTSUPP || problem == EINVAL ? 0 : problem;
}

}  // namespace

std::string temporary_directory() {
  const char* set = std::getenv("TMPDIR");
  return set != nullptr && *set != '\0' ? set : "/tmp";
}

std::string problem_of_temporary_directory() {
  const int problem = try_to_write(temporary_directory());
  if (problem == 0) return "";
  return "the directory for temporary files, " + temporary_directory() + ", cannot take " +
         std::to_string(needed_bytes >> 20) + " MiB: " + std::strerror(problem);
}

}  // namespace zero::tool
