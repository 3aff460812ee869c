// Routes in words, for people: `zero config explain` prints the exchanges of a config.
#pragma once

#include <string>
#include <vector>

#include "zero/plan/engine_plan.h"

namespace zero::detail {

// For example "reduce-scatter: gradient (bf16) -> gradient shard (fp32), over 8 ranks".
std::string text_of(const Route& route);

// The routes of an instruction.
struct Exchange {
  std::string when;  // the part of the step, such as "last micro step"
  std::string op;    // the instruction
  int times = 1;     // occurrences there: a unit may be gathered for forward and for backward
  std::vector<std::string> routes;  // each text once, even if of several segments
};

// Lists the exchanges of a flat unit in a step, in the order of their first occurrence.
std::vector<Exchange> exchanges_of(const EnginePlan& plan, int flat_unit);

}  // namespace zero::detail
