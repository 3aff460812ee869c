// report.html: a self-contained page, without network or scripts, light or dark by the reader's
// system setting, and suitable for print.
#pragma once

#include <string>

#include "tools/report/comparison.h"

namespace zero::report {

std::string html_of(const Comparison& comparison);

}  // namespace zero::report
