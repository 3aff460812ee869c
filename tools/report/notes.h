// Explanations of a report's figures, for readers who have only the report.
#pragma once

#include <vector>

#include "tools/report/comparison.h"

namespace zero::report {

struct Note {
  const char* term;
  const char* meaning;
};

// Returns notes on the figures that this comparison has.
std::vector<Note> notes_on(const Comparison& comparison);

}  // namespace zero::report
