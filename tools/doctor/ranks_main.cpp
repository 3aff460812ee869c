// The program of the ranks of `zero doctor` under an MPI launcher. Rank 0 prints the report; for
// `zero doctor -n N` as one line of JSON.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/doctor/examination.h"
#include "tools/doctor/report.h"
#include "zero/zero.h"

int main(int argc, char** argv) {
  std::vector<std::string> directories;
  bool json = false, one_line = false;
  CLI::App app{"The ranks of zero doctor"};
  app.add_option("--dir", directories);
  app.add_flag("--json", json);
  app.add_flag("--one-line", one_line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : zero::ConfigError::code;
  }
  return zero::run(argc, argv, [&](zero::Runtime& runtime) {
    const std::string report = zero::doctor::examine(runtime, directories, "");
    if (!runtime.is_root()) return;
    const std::string text = one_line ? report + "\n"
                             : json   ? zero::doctor::indented(report)
                                      : zero::doctor::text_of(report);
    std::fputs(text.c_str(), stdout);
  });
}
