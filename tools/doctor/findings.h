// Draws conclusions from readings: a line for each fact, with advice if it is a problem for a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/doctor/links.h"
#include "tools/doctor/readings.h"

namespace zero::doctor {

enum class Level : std::uint8_t {
  fine,
  slow,    // works, but slower than possible
  failing  // some runs will fail
};
const char* name_of(Level level);

struct Finding {
  std::string topic;  // "memory", "links", ...
  std::string text;   // the fact
  Level level = Level::fine;
  std::string advice;  // a sentence, unless `fine`
};

std::vector<Finding> findings_of(const Readings& host);
std::vector<Finding> findings_of(const Links& links);

}  // namespace zero::doctor
