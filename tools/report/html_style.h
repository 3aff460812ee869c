// The style sheet of report.html.
#pragma once

namespace zero::report {

extern const char* const html_style;

}  // namespace zero::report
