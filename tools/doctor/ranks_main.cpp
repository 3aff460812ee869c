// The program of the ranks of `zero doctor` under an MPI launcher. Rank 0 prints the report; for
// `zero doctor -n N` as one line of JSON. `zero doctor` alone writes its command line.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "tools/doctor/examination.h"
#include "tools/doctor/report.h"
#include "zero/base/text.h"
#include "zero/zero.h"

namespace {

struct Request {
  std::vector<std::string> directories;
  bool json = false, one_line = false;
};

Request parsed(int argc, char** argv) {
  Request request;
  for (int at = 1; at < argc; ++at) {
    const std::string_view word = argv[at];
    if (word == "--json")
      request.json = true;
    else if (word == "--one-line")
      request.one_line = true;
    else if (word == "--dir" && at + 1 < argc)
      request.directories.emplace_back(argv[++at]);
    else
      throw zero::ConfigError("unexpected " + zero::printable(word) +
                              "; expected --dir DIRECTORY, --json or --one-line (this program is "
                              "started by zero doctor; see zero doctor --help)");
  }
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  return zero::run(argc, argv, [&](zero::Runtime& runtime) {
    const Request request = parsed(argc, argv);
    const std::string report = zero::doctor::examine(runtime, request.directories, "");
    if (!runtime.is_root()) return;
    const std::string text = request.one_line ? report + "\n"
                             : request.json   ? zero::doctor::indented(report)
                                              : zero::doctor::text_of(report);
    std::fputs(text.c_str(), stdout);
  });
}
