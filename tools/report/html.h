// report.html: one page that needs nothing else - no network, no scripts - light or dark as the
// reader's system is, and fit for print.
#pragma once

#include <string>

#include "tools/report/comparison.h"

namespace zero::report {

std::string html_of(const Comparison& comparison);

}  // namespace zero::report
