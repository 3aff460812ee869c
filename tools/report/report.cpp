#include "tools/report/report.h"

#include <filesystem>

#include "tools/options/result_file.h"
#include "tools/report/html.h"
#include "tools/report/json.h"
#include "tools/report/loss_chart.h"
#include "tools/report/markdown.h"

namespace zero::report {
namespace {

void write_file(const std::filesystem::path& path, const std::string& text) {
  write_result(path.string(), path.string(), text);
}

}  // namespace

void prepare_directory(const std::string& directory) {
  check_result_directory(directory, "--report " + directory);
}

void write_report(const Comparison& comparison, const std::string& directory) {
  const std::filesystem::path folder(directory);
  write_file(folder / "report.json", json_of(comparison));
  write_file(folder / "report.md", markdown_of(comparison));
  write_file(folder / "report.html", html_of(comparison));
  if (!nothing_ran(comparison))
    write_file(folder / "loss.svg", loss_picture_of(runs_of(comparison)));
}

std::string link_line(const std::string& directory) {
  std::string link = "report: file://";
  for (const char c : std::filesystem::absolute(directory).lexically_normal().string())
    link += c == ' ' ? "%20" : std::string(1, c);
  return link + (link.ends_with('/') ? "" : "/") + "report.html";
}

}  // namespace zero::report
