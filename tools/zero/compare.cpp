// zero compare: the table over the runs of one or more report.json.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tools/report/json.h"
#include "tools/report/report.h"
#include "tools/report/table.h"
#include "tools/zero/commands.h"
#include "zero/base/error.h"

namespace zero::tool {
namespace {

struct CompareOptions {
  std::vector<std::string> files;
  std::string report_directory;
};

// As diff(1) says it.
class Differ : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return 1; }
};

report::Comparison read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) throw ConfigError(file + " cannot be read");
  return report::comparison_of(text, file);
}

// The first file's facts stay; the others come with their variants, named by their files.
report::Comparison merged(const std::vector<std::string>& files) {
  report::Comparison whole = read(files.front());
  if (files.size() == 1) return whole;
  for (report::Variant& variant : whole.variants)
    variant.name = files.front() + ": " + variant.name;
  for (std::size_t i = 1; i < files.size(); ++i) {
    report::Comparison next = read(files[i]);
    whole.title += "; " + next.title;
    for (report::Variant& variant : next.variants) {
      variant.name = files[i] + ": " + variant.name;
      whole.variants.push_back(std::move(variant));
    }
  }
  return whole;
}

void compare(const CompareOptions& options) {
  if (!options.report_directory.empty()) report::prepare_directory(options.report_directory);
  const report::Comparison comparison = merged(options.files);
  std::fputs(report::text_of(comparison).c_str(), stdout);
  if (!options.report_directory.empty()) report::write_report(comparison, options.report_directory);
  std::fflush(stdout);
  if (!report::bits_equal(comparison)) throw Differ("the bits differ");
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* command = app.add_subcommand(
      "compare", "The table of reports of train_gpt --report; exit code 1 if bits differ");
  command->add_option("REPORT", options->files, "report.json, one or more")->required();
  command->add_option("--report", options->report_directory, "Write a report over all of them")
      ->type_name("DIR");
  command->callback([options] { compare(*options); });
}

}  // namespace zero::tool
