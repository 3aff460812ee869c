// Writes a report of a made-up comparison, for the tests that look at it in a browser.
// Usage: report_sample plain|awkward|least DIRECTORY
#include <string>

#include "tests/tools/report_samples.h"
#include "tools/report/report.h"

int main(int argc, char** argv) {
  if (argc != 3) return 10;
  const std::string name = argv[1];
  zero::report::prepare_directory(argv[2]);
  zero::report::write_report(name == "plain"     ? samples::plain()
                             : name == "awkward" ? samples::awkward()
                                                 : samples::least(),
                             argv[2]);
}
