// The time line of a simulated step, for the report's page.
#pragma once

#include "tools/planner/plan_rows.h"
#include "tools/planner/request.h"
#include "tools/report/timeline.h"

namespace zero::planner {

report::Timeline timeline_of(const Request& request, const PlanRow& row);

}  // namespace zero::planner
