#include "tools/report/run_figures.h"

#include <algorithm>

namespace zero::report {
namespace {

std::int64_t peak_of(const zero::RankReport& rank) {
  std::int64_t peak = 0;
  for (const zero::MemoryUse& use : rank.memory) peak += use.peak;
  return peak;
}

std::vector<MemoryUse> tier_of(const std::vector<zero::MemoryUse>& uses) {
  std::vector<MemoryUse> tier;
  for (const zero::MemoryUse& use : uses) tier.push_back({use.category, use.planned, use.peak});
  return tier;
}

void add_memory(const zero::EngineReport& end, Variant& variant) {
  const auto fullest =
      std::max_element(end.ranks.begin(), end.ranks.end(),
                       [](const auto& a, const auto& b) { return peak_of(a) < peak_of(b); });
  variant.memory = tier_of(fullest->memory);
  variant.in_host = tier_of(fullest->in_host);
  variant.in_pinned = tier_of(fullest->in_pinned);
  variant.in_file = tier_of(fullest->in_file);
  const auto ranks = static_cast<double>(end.ranks.size());
  for (const zero::RankReport& rank : end.ranks) {
    variant.baseline += static_cast<double>(rank.baseline_bytes) / ranks;
    variant.resident += static_cast<double>(rank.resident_bytes - rank.baseline_bytes) / ranks;
  }
}

void add_wire(const zero::EngineReport& end, double steps, Variant& variant) {
  const double share = 1 / (steps * static_cast<double>(end.ranks.size()));
  for (std::size_t i = 0; i < end.ranks.front().traffic.size(); ++i) {
    WireUse use{end.ranks.front().traffic[i].operation};
    for (const zero::RankReport& rank : end.ranks) {
      use.sent += share * static_cast<double>(rank.traffic[i].bytes_sent);
      use.inside_node += share * static_cast<double>(rank.traffic[i].bytes_inside_node);
      use.between_nodes += share * static_cast<double>(rank.traffic[i].bytes_between_nodes);
    }
    variant.wire.push_back(use);
  }
}

void add_file(const MeasuredRun& run, double steps, Variant& variant) {
  const std::vector<zero::RankReport>&end = run.after_all.ranks, &begin = run.after_warm_up.ranks;
  const double share = 1 / (steps * static_cast<double>(end.size()));
  for (std::size_t i = 0; i < end.front().file.size(); ++i) {
    FileUse use{end.front().file[i].direction};
    for (std::size_t r = 0; r < end.size(); ++r) {
      const zero::FileUse &after = end[r].file[i], &before = begin[r].file[i];
      use.bytes += share * static_cast<double>(after.bytes - before.bytes);
      use.seconds += share * (after.seconds - before.seconds);
    }
    variant.file.push_back(use);
  }
}

void add_copies(const MeasuredRun& run, double steps, Variant& variant) {
  const std::vector<zero::RankReport>&end = run.after_all.ranks, &begin = run.after_warm_up.ranks;
  const double share = 1 / (steps * static_cast<double>(end.size()));
  for (std::size_t i = 0; i < end.front().copies.size(); ++i) {
    CopyUse use{end.front().copies[i].direction};
    for (std::size_t r = 0; r < end.size(); ++r) {
      const zero::CopyUse &after = end[r].copies[i], &before = begin[r].copies[i];
      use.bytes += share * static_cast<double>(after.bytes - before.bytes);
      use.seconds += share * (after.seconds - before.seconds);
    }
    variant.copies.push_back(use);
  }
}

StepTime step_time(const MeasuredRun& run, double steps) {
  const double share = 1 / (steps * static_cast<double>(run.after_all.ranks.size()));
  StepTime time;
  for (std::size_t r = 0; r < run.after_all.ranks.size(); ++r) {
    const zero::TimeUse &end = run.after_all.ranks[r].time,
                        &begin = run.after_warm_up.ranks[r].time;
    time.compute += share * (end.kernels - begin.kernels);
    time.waiting += share * (end.waiting - begin.waiting);
    time.optimizer += share * (end.optimizer - begin.optimizer);
    time.other += share * (end.other - begin.other);
  }
  return time;
}

double median_rate(const MeasuredRun& run) {
  std::vector<double> rates;
  for (std::size_t i = static_cast<std::size_t>(run.warm_up); i < run.records.size(); ++i)
    rates.push_back(run.records[i].tokens_per_second);
  return median_of(std::move(rates));
}

}  // namespace

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Variant figures_of(const MeasuredRun& run) {
  const auto steps = static_cast<double>(run.records.size());
  Variant variant;
  variant.name = run.name;
  variant.digest = run.digest;
  variant.encoded = run.encoded;
  variant.data_ranks = run.data_ranks;
  variant.encodings = run.after_all.encodings;
  variant.tokens_per_second = median_rate(run);
  const double measured_steps = steps - static_cast<double>(run.warm_up);
  variant.time = step_time(run, measured_steps);
  add_file(run, measured_steps, variant);
  add_copies(run, measured_steps, variant);
  for (const MeasuredStep& record : run.records) {
    variant.steps.push_back({record.loss, record.gradient_norm, record.skipped});
    variant.compression_error += record.compression_error / steps;
  }
  add_memory(run.after_all, variant);
  add_wire(run.after_all, steps, variant);
  return variant;
}

}  // namespace zero::report
