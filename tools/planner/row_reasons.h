// Says why a plan has rows that send more than a plainer row does.
#pragma once

#include <string>
#include <vector>

#include "tools/planner/estimate.h"

namespace zero::planner {

// Removes optional rows that send more than the varied row, and gain neither time nor memory.
// Returns a sentence with the gain for each row that sends more, and one for the rows left out.
std::vector<std::string> explain_rows(std::vector<Estimate>& estimates,
                                      const std::vector<PlanRow>& rows);

}  // namespace zero::planner
