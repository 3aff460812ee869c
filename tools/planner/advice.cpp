#include "tools/planner/advice.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tools/planner/planned_row.h"
#include "tools/report/number.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"

namespace zero::planner {
namespace {

using report::fixed;

constexpr double equal_time = 1.02;
constexpr int most_combined = 3;  // changes at the same time

double time_per_token(const Estimate& estimate) {
  return 1 / estimate.tokens_per_second;
}

// A change, as keys of the config and options of the program.
struct PossibleChange {
  std::string what;
  Text overrides = {};
  bool recompute = false;
  bool halves_batch = false;
};

std::vector<PossibleChange> possible_changes(const Request& request) {
  std::vector<PossibleChange> all;
  for (const char* stage : {"1", "2", "3"})
    all.push_back(
        {std::string("zero_optimization.stage ") + stage,
         {{"zero_optimization.stage", stage}, {"zero_core.reshard_after_forward", "true"}}});
  if (!request.recompute) all.push_back({"recomputation", {}, true});
  all.push_back({"half the micro-batch, twice the accumulation", {}, false, true});
  if (request.cluster.device.gpu) {
    const Text optimizer = {{"zero_optimization.offload_optimizer.device", "cpu"}};
    Text both = optimizer;
    both["zero_optimization.offload_param.device"] = "cpu";
    both["zero_optimization.stage"] = "3";
    all.push_back({"offload_optimizer to host memory", optimizer});
    all.push_back({"stage 3 with offload_optimizer and offload_param to host memory", both});
  }
  Text file = {{"zero_optimization.stage", "3"}};
  for (const char* part : {"optimizer", "param"})
    file[std::string("zero_optimization.offload_") + part + ".device"] = "nvme";
  file["zero_optimization.offload_param.max_in_cpu"] = "0";
  all.push_back({"stage 3 with offload to a local disk (nvme)", file});
  all.push_back({"bf16", {{"bf16.enabled", "true"}, {"fp16.enabled", "false"}}});
  return all;
}

// Returns true if the change has no effect on the config, such as bf16 in a config of bf16.
bool changes_nothing(const PossibleChange& candidate, Request changed, const std::string& before) {
  if (candidate.overrides.empty()) return false;
  for (const auto& [path, value] : candidate.overrides) changed.overrides[path] = value;
  try {
    return describe(row_config(changed, {"config"})) == before;
  } catch (const ConfigError&) {  // refused; the estimate reports this
    return false;
  }
}

// Applies the change. Returns false if the micro-batch cannot be halved.
bool apply(const PossibleChange& candidate, Request& request, const Batch& batch) {
  for (const auto& [path, value] : candidate.overrides) request.overrides[path] = value;
  request.recompute = request.recompute || candidate.recompute;
  if (!candidate.halves_batch) return true;
  if (batch.micro < 2) return false;
  request.micro_batch = batch.micro / 2;
  request.overrides["gradient_accumulation_steps"] = std::to_string(2 * batch.accumulation);
  return true;
}

// Returns true if two of the changes set the same key.
bool overlap(const std::vector<const PossibleChange*>& parts) {
  Text seen;
  for (const PossibleChange* part : parts)
    for (const auto& [path, value] : part->overrides)
      if (!seen.try_emplace(path, value).second) return true;
  return false;
}

std::optional<Change> tried(const Request& request, const std::vector<const PossibleChange*>& parts,
                            const Batch& batch, const Estimate& before) {
  Request changed = request;
  std::string what;
  for (const PossibleChange* part : parts) {
    if (!apply(*part, changed, batch)) return std::nullopt;
    what += (what.empty() ? "" : ", and ") + part->what;
  }
  try {
    Change change{what, estimate(changed, {"config"})};
    const bool smaller = change.estimate.bytes_per_rank < before.bytes_per_rank;
    if (change.estimate.fits && smaller) return change;
  } catch (const ConfigError&) {  // the engine refuses this combination
  }
  return std::nullopt;
}

// Returns the recommended row on this number of ranks; nothing if none fits or is permitted.
std::optional<CheapestShape> shape_at(int ranks, Request request, const Budget& budget) {
  request.cluster.ranks = ranks;
  std::vector<PlanRow> rows = all_rows(request.cluster);
  std::erase_if(rows, [](const PlanRow& row) { return !row.exact; });
  std::vector<Estimate> found;
  try {
    found = estimates(request, rows);
  } catch (const ConfigError&) {  // the config does not permit this number of ranks
    return std::nullopt;
  }
  const Recommendation chosen = recommend(found);
  if (!chosen.row) return std::nullopt;
  const Estimate& row = found[*chosen.row];
  return CheapestShape{ranks, row, cost_of(row, ranks, budget.tokens, budget.price_per_hour)};
}

}  // namespace

Recommendation recommend(const std::vector<Estimate>& estimates) {
  const bool any_exact = std::ranges::any_of(estimates, &Estimate::exact);
  const auto usable = [&](const Estimate& each) {
    return each.refusal.empty() && each.fits && (each.exact || !any_exact);
  };
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < estimates.size(); ++i)
    if (usable(estimates[i]) &&
        (!best || time_per_token(estimates[i]) < time_per_token(estimates[*best])))
      best = i;
  if (!best) {
    const bool encoded = std::ranges::any_of(estimates, &Estimate::fits);
    return {std::nullopt,
            encoded ? "only rows with wire formats fit, which change the numbers" : "no row fits"};
  }
  for (std::size_t i = 0; i < *best; ++i)
    if (usable(estimates[i]) &&
        time_per_token(estimates[i]) <= equal_time * time_per_token(estimates[*best]))
      best = i;
  const Estimate& chosen = estimates[*best];
  std::string too_large;
  for (std::size_t i = 0; i < *best; ++i)
    if (estimates[i].refusal.empty() && !estimates[i].fits)
      too_large += (too_large.empty() ? "" : ", ") + estimates[i].row;
  std::string reason = std::string("the fastest row that fits") +
                       (any_exact ? " and sends exact values" : "") + ", with " +
                       fixed(100 * chosen.step.exposed / chosen.step.seconds, 0) +
                       " % of the step in waits";
  if (!too_large.empty())
    reason += "; " + too_large + (too_large.find(',') != std::string::npos ? " do" : " does") +
              " not fit";
  return {best, reason};
}

std::vector<Change> cheapest_changes(const Request& request, std::size_t most) {
  const Estimate before = estimate(request, {"config"});
  const PlannedRow now(request, {"config"});
  const std::string config = describe(now.config);
  std::vector<PossibleChange> all = possible_changes(request);
  std::erase_if(all, [&](const PossibleChange& candidate) {
    return changes_nothing(candidate, request, config);
  });
  std::vector<Change> changes;
  for (int size = 1; size <= most_combined && changes.size() < most; ++size)
    for (unsigned chosen = 1; chosen < 1U << all.size(); ++chosen) {
      if (std::popcount(chosen) != size) continue;
      std::vector<const PossibleChange*> parts;
      for (std::size_t i = 0; i < all.size(); ++i)
        if ((chosen >> i & 1U) != 0) parts.push_back(&all[i]);
      if (overlap(parts)) continue;
      if (std::optional<Change> change = tried(request, parts, now.plan().batch, before))
        changes.push_back(std::move(*change));
    }
  std::ranges::stable_sort(changes, {},
                           [](const Change& change) { return time_per_token(change.estimate); });
  if (changes.size() > most)
    changes.erase(changes.begin() + static_cast<std::ptrdiff_t>(most), changes.end());
  return changes;
}

std::string shortage_text(const Request& request) {
  constexpr std::size_t most_changes = 3;
  const Estimate now = estimate(request, {"config"});
  const Cluster& cluster = request.cluster;
  const double sharing = cluster.device.gpu ? 1 : cluster.ranks_on_node();
  std::string text =
      "planned: " + byte_text(now.bytes_per_rank) + " per rank with activations" +
      (cluster.device.gpu ? "; the GPU has "
                          : ", " + byte_text(sharing * static_cast<double>(now.bytes_per_rank)) +
                                " on the node; available there: ") +
      byte_text(cluster.device.memory_bytes);
  const std::vector<Change> changes = cheapest_changes(request, most_changes);
  if (changes.empty()) return text + "\nno combination of up to three changes would fit";
  text += "\nwhat would fit, by predicted time:";
  for (const Change& change : changes) {
    const double slower = now.tokens_per_second / change.estimate.tokens_per_second - 1;
    text += "\n  " + change.what + ": " + byte_text(change.estimate.bytes_per_rank) +
            " per rank, " + (slower < 0 ? "" : "+") + fixed(100 * slower, 0) + " % time per token";
  }
  return text;
}

RunCost cost_of(const Estimate& estimate, int ranks, double tokens, double price_per_hour) {
  const double hours = tokens / (estimate.tokens_per_second * ranks) / 3600;
  return {hours, hours * ranks * price_per_hour};
}

std::optional<CheapestShape> cheapest_shape(const Request& request, const Budget& budget) {
  const int node = request.cluster.per_node;
  const bool searches = budget.deadline_hours > 0;
  const int most = searches ? most_searched_ranks : request.cluster.ranks;
  std::optional<CheapestShape> best;
  const auto try_ranks = [&](int ranks) {
    const std::optional<CheapestShape> shape = shape_at(ranks, request, budget);
    const bool in_time = shape && (!searches || shape->cost.hours <= budget.deadline_hours);
    if (in_time && (!best || shape->cost.price < best->cost.price)) best = shape;
    return in_time;
  };
  int too_slow = 0;
  for (int ranks = request.cluster.ranks_on_node(); ranks <= most;
       ranks = ranks < node ? std::min(2 * ranks, node) : 2 * ranks) {
    const bool in_time = try_ranks(ranks);
    if (!best) too_slow = ranks;
    if (searches && in_time && ranks >= request.cluster.ranks) break;
  }
  // The smallest number of nodes in time is between two of the tried numbers.
  int enough = best && searches && best->ranks > node ? best->ranks / node : 0;
  for (int few = too_slow / node; enough - few > 1;) {
    const int middle = (few + enough) / 2;
    (try_ranks(middle * node) ? enough : few) = middle;
  }
  return best;
}

}  // namespace zero::planner
