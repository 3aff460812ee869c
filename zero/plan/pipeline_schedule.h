// Schedules of a pipeline: a list for each rank of the pipe axis, with its work for the micro
// batches of a step. GPipe (Huang et al., arXiv 1811.06965), 1F1B (PipeDream-Flush, Narayanan et
// al., arXiv 2006.09503), interleaved 1F1B (Narayanan et al., arXiv 2104.04473), and breadth-first
// (Lamy-Poirier, arXiv 2211.05953). Pure functions.
//
// A schedule is written down as the order in which each rank computes, and no more. The transfers
// between ranks come from a run of all ranks against a clock: the list of a rank is what that rank
// did, in its order. A transfer blocks both ranks until it is complete, and no lists made so wait
// for each other for ever, because all are parts of one order. find_schedule_fault() proves this
// apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zero/config.h"
#include "zero/plan/process_grid.h"
#include "zero/plan/step_plan.h"

namespace zero::detail {

// Returns what is wrong with the chunks of stages for their schedule, or "".
std::string chunks_problem(const PipelineOptions& options);

// Decides the lists.
struct PipelineShape {
  // Takes these of a config; a single rank has one run.
  PipelineShape(const PipelineOptions& options, int pipe_ranks, std::int64_t micro_batches_of_step)
      : schedule(options.schedule),
        ranks(pipe_ranks),
        chunks(pipe_ranks > 1 ? options.chunks : 1),
        micro_batches(static_cast<int>(micro_batches_of_step)) {}

  std::string schedule;
  int ranks, chunks;  // each rank has `chunks` runs of units
  int micro_batches;

  // The runs of all ranks, in the order of the model's units: run c of rank r is number
  // c * ranks + r.
  int runs() const { return ranks * chunks; }
};

// The time of a run for a micro batch.
struct RunTimes {
  double forward = 1, backward = 2;
};

struct Timetable {
  std::vector<std::vector<HalfPass>> lists;  // per rank
  double end = 0;                            // of the last rank
  double work = 0;                           // of all ranks

  // The share of the ranks' time without work.
  double bubble() const { return 1 - work / (end * static_cast<double>(lists.size())); }
};

// `times`: of the runs of all ranks, while transfers take no time; the engine's lists are those of
// equal times. Throws std::logic_error for a schedule in which ranks wait for each other for ever.
Timetable timetable_of(const PipelineShape& shape, const std::vector<RunTimes>& times = {});

// Returns the list of the rank that has the model, without the transfers that its runs have no
// links for.
std::vector<HalfPass> schedule_of(const Timetable& timetable, int rank, const Model& model);

// Returns the room that each run needs.
std::vector<RunRoom> room_of(const std::vector<HalfPass>& schedule, int runs);

// Runs the lists of all ranks, in which a transfer takes place when both neighbors have come to it.
// Returns the first fault, or "": a rank that waits for ever, a half without its input, and
// gradients in another order than that of micro batches.
std::string find_schedule_fault(const std::vector<std::vector<HalfPass>>& lists);

}  // namespace zero::detail
