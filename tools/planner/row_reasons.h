// Says why a plan has rows that send more than a plainer row does.
#pragma once

#include <string>
#include <vector>

#include "tools/planner/estimate.h"

namespace zero::planner {

// Removes optional rows that send more than the row that they vary, and gain neither time nor
// memory. Returns a sentence for each row that sends more, with its gain, and one for those left
// out.
std::vector<std::string> explain_rows(std::vector<Estimate>& estimates,
                                      const std::vector<PlanRow>& rows);

}  // namespace zero::planner
