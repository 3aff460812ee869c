#include "examples/gpt/train/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "examples/gpt/model/model_spec.h"
#include "examples/gpt/train/sharding_remarks.h"
#include "examples/gpt/train/stage_comparison.h"
#include "tools/report/number.h"
#include "tools/report/report.h"
#include "tools/report/table.h"

namespace gpt {
namespace {

std::int64_t total(const std::vector<zero::MemoryUse>& uses) {
  std::int64_t bytes = 0;
  for (const zero::MemoryUse& use : uses) bytes += use.planned;
  return bytes;
}

// Ranks hold almost the same amounts. If there are more ranks than this, only this many are
// planned, spread evenly and including the first and the last.
constexpr int most_planned_ranks = 256;

// Returns the plan of the rank that holds the most.
zero::MemoryPlan largest_plan(const Task& task, const Options& options) {
  const zero::ModelSpec model = describe(task.model);
  const int last = options.planned_ranks - 1, looked_at = std::min(last, most_planned_ranks);
  zero::MemoryPlan largest;
  for (int i = 0; i <= looked_at; ++i) {
    const auto rank = static_cast<int>(std::int64_t{last} * i / std::max(looked_at, 1));
    zero::MemoryPlan plan = zero::plan_memory(model, task.config, options.planned_ranks,
                                              options.device == "cuda", rank);
    if (i == 0 || total(plan.memory) > total(largest.memory)) largest = std::move(plan);
  }
  return largest;
}

zero::report::Variant variant_of(const std::string& name, const Task& task,
                                 const Options& options) {
  const zero::MemoryPlan plan = largest_plan(task, options);
  zero::report::Variant variant;
  variant.name = name;
  variant.ran = false;
  for (const auto& [to, from] : {std::pair{&variant.memory, &plan.memory},
                                 {&variant.in_host, &plan.in_host},
                                 {&variant.in_pinned, &plan.in_pinned},
                                 {&variant.in_file, &plan.in_file}})
    for (const zero::MemoryUse& use : *from)
      to->push_back({use.category, use.planned, use.planned});
  return variant;
}

}  // namespace

zero::report::Comparison memory_plan(const Options& options) {
  const bool compares = !options.compared.empty();
  std::vector<Task> tasks;
  if (compares)
    tasks = resolve_variants(options);
  else
    tasks.push_back(resolve(options));
  zero::report::Comparison comparison;
  comparison.ranks = options.planned_ranks;
  comparison.parameters = tasks.front().model.parameters();
  comparison.title = tasks.front().model.name + " with " +
                     zero::report::fixed(static_cast<double>(comparison.parameters), 0) +
                     " parameters on " + std::to_string(options.planned_ranks) +
                     (options.device == "cuda" ? " GPU" : " CPU") + " ranks";
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const std::string stage = "stage " + std::to_string(tasks[i].config.zero_optimization.stage);
    names.push_back(compares ? options.compared[i].name : stage);
    comparison.variants.push_back(variant_of(names.back(), tasks[i], options));
  }
  comparison.remarks =
      sharding_remarks(names, tasks, options.planned_ranks, options.device == "cuda");
  if (!options.config_file.empty()) comparison.facts.emplace_back("config", options.config_file);
  return comparison;
}

void show_memory_plan(const Options& options) {
  if (!options.report_directory.empty()) zero::report::prepare_directory(options.report_directory);
  const zero::report::Comparison comparison = memory_plan(options);
  std::printf("%s", zero::report::text_of(comparison).c_str());
  if (options.report_directory.empty()) return;
  zero::report::write_report(comparison, options.report_directory);
  std::printf("report: %s/report.html (and report.md, report.json)\n",
              options.report_directory.c_str());
}

}  // namespace gpt
