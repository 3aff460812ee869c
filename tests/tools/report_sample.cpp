// Writes a report of an invented comparison, for the tests that view it in a browser.
// Usage: report_sample NAME DIRECTORY
#include <string>

#include "tests/tools/report_samples.h"
#include "tools/report/report.h"

int main(int argc, char** argv) {
  if (argc != 3) return 10;
  for (const samples::Sample& sample : samples::all)
    if (sample.name == std::string(argv[1])) {
      zero::report::prepare_directory(argv[2]);
      zero::report::write_report(sample.make(), argv[2]);
      return 0;
    }
  return 10;
}
