#include "tools/report/report.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tools/report/html.h"
#include "tools/report/json.h"
#include "tools/report/loss_chart.h"
#include "tools/report/markdown.h"
#include "zero/base/error.h"

namespace zero::report {
namespace {

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw SaveError(path.string() + " could not be written: " + std::strerror(errno));
}

}  // namespace

void prepare_directory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw ConfigError("--report " + directory + " cannot be made: " + error.message());
  // Permissions are not sufficient, because a file system may refuse for other reasons.
  const std::filesystem::path probe =
      std::filesystem::path(directory) / (".probe." + std::to_string(::getpid()));
  errno = 0;
  const bool writable = std::ofstream(probe).is_open();
  const int reason = errno;
  std::filesystem::remove(probe, error);
  if (!writable)
    throw ConfigError("--report " + directory + " cannot be written to: " + std::strerror(reason));
}

void write_report(const Comparison& comparison, const std::string& directory) {
  const std::filesystem::path folder(directory);
  write_file(folder / "report.json", json_of(comparison));
  write_file(folder / "report.md", markdown_of(comparison));
  write_file(folder / "report.html", html_of(comparison));
  if (!nothing_ran(comparison))
    write_file(folder / "loss.svg", loss_picture_of(runs_of(comparison)));
}

}  // namespace zero::report
