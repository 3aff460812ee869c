// Routes in words, for people: `zero config explain` prints the exchanges of a config.
#pragma once

#include <string>
#include <vector>

#include "zero/plan/engine_plan.h"

namespace zero::detail {

// For example "reduce-scatter: gradient (bf16) -> gradient shard (fp32), over 8 ranks".
std::string text_of(const Route& route);

// The routes of one instruction.
struct Exchange {
  std::string when;  // the part of the step, such as "last micro step"
  std::string op;    // the instruction
  int times = 1;     // that it occurs there: a unit may be gathered for forward and for backward
  std::vector<std::string> routes;  // each text once, though several segments may have it
};

// Lists the exchanges of a flat unit in one step, in the order of their first occurrence.
std::vector<Exchange> exchanges_of(const EnginePlan& plan, int flat_unit);

}  // namespace zero::detail
