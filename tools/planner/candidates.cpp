#include "tools/planner/candidates.h"

#include <algorithm>

#include "tools/planner/planned_row.h"
#include "tools/planner/table.h"
#include "zero/base/error.h"

namespace zero::planner {
namespace {

constexpr const char* micro_key = "train_micro_batch_size_per_gpu";

bool is_automatic(const config_schemas::Loaded& loaded) {
  return std::ranges::any_of(loaded.entries, [](const config_schemas::Entry& entry) {
    return entry.path == micro_key && entry.source == config_schemas::Source::automatic;
  });
}

// Returns the sizes to try, in ascending order.
std::vector<std::int64_t> micro_batches(const Batch& batch, int ranks,
                                        const MicroBatchLimits& limits) {
  const std::int64_t samples = batch.global / ranks;  // of a rank
  std::vector<std::int64_t> sizes{batch.micro};
  for (std::int64_t size = 1; size <= samples; size *= 2)
    if (samples % size == 0) sizes.push_back(size);
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::erase_if(sizes, [&](std::int64_t size) {
    return size < limits.least || (limits.most && size > *limits.most);
  });
  if (limits.count && sizes.size() > *limits.count)
    sizes.erase(sizes.begin(), sizes.end() - static_cast<std::ptrdiff_t>(*limits.count));
  return sizes;
}

Request with_batch(Request request, const Batch& batch, std::int64_t micro) {
  request.overrides["train_batch_size"] = std::to_string(batch.global);
  request.overrides[micro_key] = std::to_string(micro);
  request.overrides["gradient_accumulation_steps"] =
      std::to_string(batch.global / (micro * request.cluster.ranks));
  return request;
}

void add(Candidates& found, const Request& request, const Estimate& row, std::int64_t micro,
         std::int64_t accumulation) {
  const PlanResult result{.request = request, .estimates = {row}, .recommendation = {0, ""}};
  found.fit.push_back(
      {row.row, micro, accumulation, row.step.seconds, row.bytes_per_rank, config_of(result)});
}

}  // namespace

Candidates candidates(const Request& request, const std::vector<PlanRow>& rows,
                      const MicroBatchLimits& limits) {
  const config_schemas::Loaded loaded = load_config(request, request.overrides);
  const int ranks = request.cluster.ranks;
  if (loaded.config.pipeline.stages > 1)
    throw ConfigError("pipeline.stages is " + std::to_string(loaded.config.pipeline.stages) +
                      ", and only runs without a pipeline are searched: zero plan "
                      "--pipeline-stages compares stages");
  BatchOptions options = loaded.config.batch;
  if (!options.given()) options.train_micro_batch_size_per_gpu = 1;
  const bool rank_independent = loaded.config.zero_core.rank_independent;
  const Batch batch = resolve_batch(options, ranks, rank_independent);
  const bool fixed =
      rank_independent || options.elasticity.enabled || (is_automatic(loaded) && !limits.open);
  const std::vector<std::int64_t> sizes =
      fixed ? std::vector{batch.micro} : micro_batches(batch, ranks, limits);
  if (sizes.empty())
    throw ConfigError("no micro-batch within the limits of the search divides the " +
                      std::to_string(batch.global / ranks) + " samples of a rank and step");
  Candidates found;
  for (const std::int64_t micro : sizes) {
    const Request sized = fixed ? request : with_batch(request, batch, micro);
    for (const Estimate& row : estimates(sized, rows)) {
      if (row.row == "config" && micro != batch.micro) continue;  // that is another plan
      const std::string why = row.refusal.empty() ? row.why_not : row.refusal;
      if (why.empty())
        add(found, sized, row, micro, fixed ? batch.accumulation : batch.global / (micro * ranks));
      else
        found.left_out.push_back(row.row + ", micro-batch " + std::to_string(micro) + ": " + why);
    }
  }
  std::ranges::stable_sort(found.fit, {}, &Candidate::predicted_seconds);
  return found;
}

}  // namespace zero::planner
