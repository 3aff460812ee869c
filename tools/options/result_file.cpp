#include "tools/options/result_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "zero/base/error.h"
#include "zero/base/output_file.h"

namespace zero {
namespace {

// Pipes and devices, such as /dev/stdout, are written and not replaced.
bool is_stream(const std::string& path) {
  std::error_code none;
  const std::filesystem::file_status status = std::filesystem::status(path, none);
  return is_fifo(status) || is_character_file(status);
}

}  // namespace

void write_result(const std::string& path, const std::string& name, std::string_view text) {
  std::string problem;
  if (is_stream(path)) {
    GrowingFile stream;
    problem = stream.open(path);
    if (problem.empty()) problem = stream.write(text);
  } else {
    problem = replace_file(path, text);
  }
  if (!problem.empty()) throw SaveError(name + " could not be written: " + problem);
}

void check_result_file(const std::string& path, const std::string& name) {
  if (is_stream(path)) return;
  ReplacedFile attempt;
  const std::string problem = attempt.open(path);
  if (!problem.empty()) throw ConfigError(name + " cannot be written: " + problem);
}

void check_result_directory(const std::string& path, const std::string& name) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw ConfigError(name + " cannot be made: " + error.message());
  // Permissions are not sufficient, because a file system may refuse for other reasons.
  ReplacedFile attempt;
  const std::string problem = attempt.open((std::filesystem::path(path) / "probe").string());
  if (!problem.empty()) throw ConfigError(name + " cannot be written to: " + problem);
}

void flush_standard_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  // An earlier call has failed, and the reason is lost. Another line shows whether the failure
  // lasts.
  if (errno == 0 && ::write(STDOUT_FILENO, "\n", 1) == 1) errno = 0;
  if (errno == EPIPE) return;  // the reader needs no more
  throw SaveError("standard output could not be written" +
                  (errno != 0 ? std::string(": ") + std::strerror(errno) : ""));
}

}  // namespace zero
