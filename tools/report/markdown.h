// report.md: the run, the verdict and the table.
#pragma once

#include <string>

#include "tools/report/comparison.h"

namespace zero::report {

std::string markdown_of(const Comparison& comparison);

}  // namespace zero::report
