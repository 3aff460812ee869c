// zero compare: the table over the runs and plans of one or more reports, and over logs of runs.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/report/json.h"
#include "tools/report/log.h"
#include "tools/report/report.h"
#include "tools/report/table.h"
#include "tools/zero/commands.h"
#include "zero/base/error.h"
#include "zero/base/input_file.h"

namespace zero::tool {
namespace {

constexpr std::size_t largest_report_mebibytes = 1024;

struct CompareOptions {
  std::vector<std::string> reports;
  std::string report_directory;
};

// Reads a report.json, or that of the directory of --report, or a log.
report::Comparison read_report(const std::string& given) {
  std::error_code unreadable;
  std::string file = given;
  if (std::filesystem::is_directory(given, unreadable)) {
    file = std::filesystem::path(given) / "report.json";
    if (!std::filesystem::exists(file, unreadable))
      throw ConfigError("directory " + given +
                        " has no report.json; expected the directory that --report wrote to");
  }
  const std::string text = read_input_file(
      {file, file, largest_report_mebibytes, "the report.json of train_gpt --report", true});
  return report::is_log(text) ? report::comparison_of_log(text, file)
                              : report::comparison_of(text, file);
}

template <class Named>
void append(std::vector<Named>& all, std::vector<Named> more, const std::string& report) {
  for (Named& each : more) {
    each.name = report + ": " + each.name;
    all.push_back(std::move(each));
  }
}

// Merges reports: the facts of the first, and the variants of all, prefixed with their reports'
// names.
report::Comparison merged(const std::vector<std::string>& reports) {
  report::Comparison whole = read_report(reports.front());
  if (reports.size() == 1) return whole;
  whole.variants.clear();
  whole.absent.clear();
  whole.remarks.clear();
  for (const std::string& name : reports) {
    report::Comparison next = read_report(name);
    if (&name != &reports.front() && next.title != whole.title) whole.title += "; " + next.title;
    append(whole.variants, std::move(next.variants), name);
    append(whole.absent, std::move(next.absent), name);
    for (const std::string& remark : next.remarks) whole.remarks.push_back(name + ": " + remark);
  }
  return whole;
}

void compare(const CompareOptions& options) {
  if (!options.report_directory.empty()) report::prepare_directory(options.report_directory);
  const report::Comparison comparison = merged(options.reports);
  std::fputs(report::text_of(comparison).c_str(), stdout);
  if (!options.report_directory.empty()) {
    report::write_report(comparison, options.report_directory);
    std::fprintf(stderr, "%s\n", report::link_line(options.report_directory).c_str());
  }
  std::fflush(stdout);
  if (!report::bits_equal(comparison)) throw Differ("the bits differ");
  if (!comparison.absent.empty()) throw Differ("not all that was asked for ran");
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand("compare",
                                         "The table of reports of train_gpt --report, of runs and "
                                         "of plans, and of logs; exit code 1 if bits differ");
  command
      ->add_option("REPORT", options->reports,
                   "One or more results of --report: the directory, or its report.json; or of "
                   "--log-json")
      ->required();
  command->add_option("--report", options->report_directory, "Write a report over all of them")
      ->type_name("DIR");
  command->callback([options] { compare(*options); });
}

}  // namespace zero::tool
