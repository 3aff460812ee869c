#include "zero/plan/schedule_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "zero/plan/pipeline.h"
#include "zero/plan/pipeline_schedule.h"

namespace zero::detail {

namespace {

// The times of the runs of all stages.
std::vector<RunTimes> times_of(const Model& whole, const std::vector<int>& first_units) {
  const std::vector<std::int64_t> weights = work_of_units(whole);
  std::vector<RunTimes> times;
  for (std::size_t run = 0; run < first_units.size(); ++run) {
    const auto begin = weights.begin() + first_units[run];
    const auto end =
        run + 1 < first_units.size() ? weights.begin() + first_units[run + 1] : weights.end();
    // One more, since a run without work would be taken for one without a forward pass.
    const double work = 1 + std::accumulate(begin, end, 0.0);
    times.push_back({work, 2 * work});
  }
  return times;
}

}  // namespace

Config with_schedule(Config config, const Model& whole, int data_ranks, int stages) {
  if (config.pipeline.schedule == "best") {
    const Batch batch = resolve_batch(config.batch, data_ranks, config.zero_core.rank_independent);
    config.pipeline = best_schedule(whole, config.pipeline, stages, batch.accumulation);
  }
  return config;
}

PipelineOptions best_schedule(const Model& whole, const PipelineOptions& options, int stages,
                              std::int64_t micro_batches) {
  PipelineOptions chosen = options;
  chosen.schedule = options.chunks > 1 ? "interleaved" : "1f1b";
  if (stages == 1 || options.chunks > 1) return chosen;
  std::vector<std::pair<PipelineOptions, Timetable>> all;
  const auto lay_out = [&] {
    const std::vector<int> first = first_units(whole, chosen, stages);
    if (shared_by_runs(whole, first, stages) != nullptr) return;
    all.emplace_back(chosen, timetable_of({chosen, stages, micro_batches}, times_of(whole, first)));
  };
  lay_out();
  // A list of first units fixes the number of runs.
  const bool listed = options.partition.starts_with('[');
  const auto most = listed ? 1 : std::min<std::int64_t>(8, std::ssize(whole.units) / stages);
  for (chosen.schedule = "interleaved", chosen.chunks = 2; chosen.chunks <= most; ++chosen.chunks)
    lay_out();
  const auto end_of = [](const auto& each) { return each.second.end; };
  const double shortest = end_of(std::ranges::min(all, {}, end_of));
  const auto& [taken, table] =
      *std::ranges::find_if(all, [&](const auto& each) { return end_of(each) <= 1.02 * shortest; });
  chosen = taken;
  const auto idle = [](const Timetable& of) {
    return std::to_string(std::lround(100 * of.bubble())) + " %";
  };
  chosen.reason = "the best: idle for " + idle(table) + " of a step" +
                  (taken.chunks > 1 ? ", with 1f1b " + idle(all.front().second) : "");
  return chosen;
}

std::string schedule_text(const PipelineOptions& options) {
  return options.schedule +
         (options.chunks > 1 ? ", " + std::to_string(options.chunks) + " runs each" : "") +
         (options.reason.empty() ? "" : "; " + options.reason);
}

}  // namespace zero::detail
