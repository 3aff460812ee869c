// The schedule of a pipeline that "best" stands for. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "zero/config.h"
#include "zero/plan/model.h"

namespace zero::detail {

// Returns the config with best_schedule() in place of "best". `data_ranks`: of each stage.
Config with_schedule(Config config, const Model& whole, int data_ranks, int stages);

// Steps of 1f1b and of interleaved with 2 to 8 chunks (or with those of the options, if above 1)
// are laid out for the units' work and transfers that take no time; of those within 2 % of the
// shortest, the one with the fewest chunks is returned, since each further run is kept for more
// micro batches, and sends more. Chunks by which a stage shares with itself are left out
// (shared_by_runs()). gpipe and breadth_first take as long, and keep more. `micro_batches`: of a
// step of a data rank. Throws as first_units().
PipelineOptions best_schedule(const Model& whole, const PipelineOptions& options, int stages,
                              std::int64_t micro_batches);

// Returns "interleaved, 2 runs each; the best: idle for 11 % of a step": schedule, chunks, reason.
std::string schedule_text(const PipelineOptions& options);

}  // namespace zero::detail
