#include "examples/gpt/train/sharding_remarks.h"

#include <optional>
#include <string_view>

#include "examples/gpt/model/model_spec.h"
#include "tools/report/number.h"

namespace gpt {
namespace {

constexpr std::int64_t most_layers = 1024;  // upper limit of the search

struct Held {
  std::int64_t at_rest = 0, slots = 0;

  std::int64_t all() const { return at_rest + slots; }
};

struct Setting {
  int ranks;
  bool on_gpu;
};

Held held_by(const Task& task, std::int64_t layers, const Setting& setting) {
  ModelConfig model = task.model;
  model.layers = layers;
  Held held;
  const zero::MemoryPlan plan =
      zero::plan_memory(describe(model), task.config, setting.ranks, setting.on_gpu);
  for (const zero::MemoryUse& use : plan.memory)
    (std::string_view(use.category).ends_with("_slots") ? held.slots : held.at_rest) += use.planned;
  return held;
}

// Whether slots do not say what a task's memory is: with offload, or of a stage of a pipeline.
bool is_left_out(const Task& task) {
  const zero::ZeroOptions& zero = task.config.zero_optimization;
  return task.config.pipeline.stages > 1 ||
         zero.offload_optimizer.device != zero::OffloadDevice::none ||
         zero.offload_param.device != zero::OffloadDevice::none;
}

// Returns the smallest number of layers for which `more` takes less memory than `less`; it does not
// for `layers`.
std::optional<std::int64_t> layers_that_pay(const Task& more, const Task& less, std::int64_t layers,
                                            const Setting& setting) {
  const auto pays = [&](std::int64_t count) {
    return held_by(more, count, setting).all() < held_by(less, count, setting).all();
  };
  std::int64_t enough = 2 * layers;
  while (enough <= most_layers && !pays(enough)) enough *= 2;
  if (enough > most_layers) return std::nullopt;
  std::int64_t too_few = enough / 2;
  while (enough - too_few > 1) {
    const std::int64_t middle = (too_few + enough) / 2;
    (pays(middle) ? enough : too_few) = middle;
  }
  return enough;
}

std::string advice(const Task& more, const Task& less, const Setting& setting) {
  ModelConfig model = more.model;
  const auto layers = layers_that_pay(more, less, model.layers, setting);
  if (!layers)
    return "Up to " + std::to_string(most_layers) + " layers of this size would not change that.";
  model.layers = *layers;
  return "With more layers of this size it would save from " + std::to_string(*layers) +
         " layers on (" + zero::report::fixed(static_cast<double>(model.parameters()), 0) +
         " parameters; this model has " + std::to_string(more.model.layers) + " layers).";
}

}  // namespace

std::vector<std::string> sharding_remarks(const std::vector<std::string>& names,
                                          const std::vector<Task>& tasks, int ranks, bool on_gpu) {
  const Setting setting{ranks, on_gpu};
  std::vector<Held> held;
  for (const Task& task : tasks)
    held.push_back(is_left_out(task) ? Held{} : held_by(task, task.model.layers, setting));
  std::vector<std::string> remarks;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (is_left_out(tasks[i])) continue;
    std::optional<std::size_t> least;
    for (std::size_t k = 0; k < tasks.size(); ++k)
      if (!is_left_out(tasks[k]) && held[k].slots < held[i].slots &&
          held[k].at_rest > held[i].at_rest && (!least || held[k].all() < held[*least].all()))
        least = k;
    if (!least || held[i].all() < held[*least].all()) continue;
    remarks.push_back(
        names[i] + " saves no memory over " + names[*least] + " here: what rests is " +
        zero::report::byte_text(held[*least].at_rest - held[i].at_rest) +
        " less per rank, but slots, in which units are gathered and gradients wait to be reduced, "
        "take " +
        zero::report::byte_text(held[i].slots - held[*least].slots) + " more. " +
        advice(tasks[i], tasks[*least], setting));
  }
  return remarks;
}

}  // namespace gpt
