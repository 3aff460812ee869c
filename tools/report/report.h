// Files of --report: report.html for people, report.md for issues and wikis, report.json for
// programs.
#pragma once

#include <string>

#include "tools/report/comparison.h"

namespace zero::report {

// Creates the directory and checks that files can be written there, before the runs begin. Throws
// ConfigError.
void prepare_directory(const std::string& directory);

// Replaces the files of an earlier report. Throws SaveError.
void write_report(const Comparison& comparison, const std::string& directory);

// "report: file:///home/me/out/report.html": what a terminal opens on a click.
std::string link_line(const std::string& directory);

}  // namespace zero::report
