// What the figures of a report mean, for people who see nothing but the report.
#pragma once

#include <vector>

#include "tools/report/comparison.h"

namespace zero::report {

struct Note {
  const char* term;
  const char* meaning;
};

// On the figures that this comparison has.
std::vector<Note> notes_on(const Comparison& comparison);

}  // namespace zero::report
