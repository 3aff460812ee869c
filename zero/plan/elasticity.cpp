#include "zero/plan/elasticity.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "zero/base/error.h"

namespace zero::detail {

namespace {

using std::to_string;

// The 38 smallest highly composite numbers; DeepSpeed has no more.
constexpr std::array<std::int64_t, 38> composites = {
    1,      2,      4,      6,      12,     24,     36,     48,    60,    120,
    180,    240,    360,    720,    840,    1260,   1680,   2520,  5040,  7560,
    10080,  15120,  20160,  25200,  27720,  45360,  50400,  55440, 83160, 110880,
    166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

// Both bound the time of a choice.
constexpr std::int64_t largest_multiple = 1'000'000'000'000;
constexpr std::ptrdiff_t most_sizes = 100;

std::string list_of(const std::vector<std::int64_t>& values) {
  std::string text;
  for (const std::int64_t value : values) text += (text.empty() ? "" : ", ") + to_string(value);
  return "[" + text + "]";
}

// A batch and the numbers of ranks that it fits.
struct Fit {
  std::int64_t total = 0;
  std::set<std::int64_t> ranks;
};

std::set<std::int64_t> fitting_ranks(std::int64_t total, const std::vector<std::int64_t>& micros,
                                     std::int64_t least, std::int64_t most) {
  std::set<std::int64_t> fitting;
  const auto add = [&](std::int64_t ranks) {
    const bool fits =
        std::ranges::any_of(micros, [&](std::int64_t micro) { return total / ranks % micro == 0; });
    if (least <= ranks && ranks <= most && fits) fitting.insert(ranks);
  };
  for (std::int64_t d = 1; d <= total / d; ++d)
    if (total % d == 0) add(d), add(total / d);
  return fitting;
}

std::int64_t common_multiple(const std::vector<std::int64_t>& micros) {
  std::int64_t multiple = 1;
  for (const std::int64_t micro : micros)
    if (__builtin_mul_overflow(multiple / std::gcd(multiple, micro), micro, &multiple) ||
        multiple > largest_multiple)
      throw ConfigError("elasticity.micro_batch_sizes: " + list_of(micros) +
                        " have no common multiple up to " + to_string(largest_multiple) +
                        "; use fewer or smaller sizes");
  return multiple;
}

// Version 0.1. A least common multiple above `limit` is a candidate, as in DeepSpeed 0.18.
Fit fit_most(const ElasticityOptions& options, std::int64_t limit, std::int64_t least,
             std::int64_t most) {
  std::vector<std::int64_t> bases = options.micro_batch_sizes;
  bases.push_back(common_multiple(options.micro_batch_sizes));
  Fit best{std::ranges::min(options.micro_batch_sizes), {}};
  for (const std::int64_t base : bases) {
    const std::int64_t factor = std::max<std::int64_t>(1, limit / base);
    const std::int64_t total = base * *std::prev(std::ranges::upper_bound(composites, factor));
    std::set<std::int64_t> ranks = fitting_ranks(total, options.micro_batch_sizes, least, most);
    const bool wins_tie = options.prefer_larger_batch ? total > best.total : total < best.total;
    if (ranks.size() > best.ranks.size() || (ranks.size() == best.ranks.size() && wins_tie))
      best = {total, std::move(ranks)};
  }
  return best;
}

// Version 0.2, if whole nodes do not fit the ranks at hand.
Fit fit_these(const ElasticityOptions& options, std::int64_t ranks) {
  std::vector<std::int64_t> totals;
  for (const std::int64_t micro : options.micro_batch_sizes)
    totals.push_back(options.max_train_batch_size / (micro * ranks) * (micro * ranks));
  const std::int64_t total =
      options.prefer_larger_batch ? std::ranges::max(totals) : std::ranges::min(totals);
  if (total == 0)
    throw ConfigError(
        "elasticity.max_train_batch_size: " + to_string(options.max_train_batch_size) +
        " is too small for " + to_string(ranks) + " ranks with micro_batch_sizes " +
        list_of(options.micro_batch_sizes) + "; start fewer ranks, or raise it");
  return {total, {ranks}};
}

Fit fit_nodes(const ElasticityOptions& options, std::int64_t ranks) {
  const std::int64_t of_node = options.num_gpus_per_node;
  const std::int64_t limit = options.max_train_batch_size / of_node;
  const std::int64_t most = options.max_gpus / of_node;
  const Fit nodes = fit_most(options, limit, std::max<std::int64_t>(1, options.min_gpus / of_node),
                             most > 0 ? most : limit / std::ranges::min(options.micro_batch_sizes));
  Fit fit{nodes.total * of_node, {}};
  for (const std::int64_t count : nodes.ranks) fit.ranks.insert(count * of_node);
  return fit.ranks.contains(ranks) ? fit : fit_these(options, ranks);
}

[[noreturn]] void does_not_fit(const Fit& fit, int ranks) {
  const auto above = fit.ranks.upper_bound(ranks);
  std::string near = above == fit.ranks.begin() ? "" : to_string(*std::prev(above));
  if (above != fit.ranks.end()) near += (near.empty() ? "" : " or ") + to_string(*above);
  throw ConfigError("elasticity.max_train_batch_size and micro_batch_sizes give train_batch_size " +
                    to_string(fit.total) + ", which does not fit " + to_string(ranks) +
                    (ranks == 1 ? " rank" : " ranks") +
                    (near.empty() ? "; no number of ranks from min_gpus to max_gpus fits it"
                                  : "; next to it " + near + " would fit"));
}

}  // namespace

void check_elasticity(const BatchOptions& options) {
  const ElasticityOptions& block = options.elasticity;
  const auto require = [](bool holds, const std::string& problem) {
    if (!holds) throw ConfigError("elasticity." + problem);
  };
  require(block.max_train_batch_size > 0,
          "max_train_batch_size: must be given with elasticity.enabled");
  require(!block.micro_batch_sizes.empty(),
          "micro_batch_sizes: must be given with elasticity.enabled");
  require(std::ssize(block.micro_batch_sizes) <= most_sizes,
          "micro_batch_sizes: " + to_string(block.micro_batch_sizes.size()) +
              " are too many; allowed: up to " + to_string(most_sizes));
  require(
      std::ranges::min(block.micro_batch_sizes) > 0,
      "micro_batch_sizes: " + list_of(block.micro_batch_sizes) + " must be integers of at least 1");
  require(block.min_gpus > 0 && block.min_gpus <= block.max_gpus,
          "max_gpus: " + to_string(block.max_gpus) + " must be at least min_gpus " +
              to_string(block.min_gpus) + ", and that at least 1");
  const bool by_node = block.version != "0.1";
  require(!by_node || block.version == "0.2",
          "version: " + block.version + " is not known; allowed: 0.1, 0.2");
  require(block.num_gpus_per_node > 0, "num_gpus_per_node: must be at least 1");
  const std::int64_t limit = block.max_train_batch_size / (by_node ? block.num_gpus_per_node : 1);
  require(std::ranges::max(block.micro_batch_sizes) <= limit,
          "micro_batch_sizes: " + list_of(block.micro_batch_sizes) + " exceed " + to_string(limit) +
              ", max_train_batch_size" +
              (by_node && block.num_gpus_per_node > 1 ? " over num_gpus_per_node" : ""));
  common_multiple(block.micro_batch_sizes);
  if (block.ignore_non_elastic_batch_info) return;
  for (const auto& [key, value] :
       {std::pair{"train_batch_size", options.train_batch_size},
        {"train_micro_batch_size_per_gpu", options.train_micro_batch_size_per_gpu},
        {"gradient_accumulation_steps", options.gradient_accumulation_steps}})
    if (value != 0)
      throw ConfigError(std::string(key) +
                        ": elasticity chooses the batch; remove this key, or set "
                        "elasticity.ignore_non_elastic_batch_info, with which it has no effect");
}

ElasticBatch choose_elastic_batch(const ElasticityOptions& options, int ranks) {
  const Fit fit = options.version == "0.1" ? fit_most(options, options.max_train_batch_size,
                                                      options.min_gpus, options.max_gpus)
                                           : fit_nodes(options, ranks);
  if (!fit.ranks.contains(ranks)) does_not_fit(fit, ranks);
  ElasticBatch batch{fit.total, 0, {fit.ranks.begin(), fit.ranks.end()}};
  for (const std::int64_t micro : options.micro_batch_sizes)
    if (fit.total / ranks % micro == 0) batch.micro = std::max(batch.micro, micro);
  return batch;
}

BatchOptions elastic_batch(const BatchOptions& options, int ranks) {
  try {
    check_elasticity(options);
    const ElasticBatch batch = choose_elastic_batch(options.elasticity, ranks);
    return {batch.total, batch.micro, 0, options.place};
  } catch (const ConfigError& error) {
    throw ConfigError((options.place.empty() ? "" : options.place + ": ") + error.what());
  }
}

}  // namespace zero::detail
