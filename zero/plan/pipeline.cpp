#include "zero/plan/pipeline.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <regex>
#include <span>
#include <sstream>
#include <utility>

#include "zero/plan/pipeline_schedule.h"

namespace zero::detail {

namespace {

constexpr std::string_view type_prefix = "type:";

std::int64_t elements_of(const Model& model, const UnitDeclaration& unit) {
  std::int64_t elements = 0;
  for (const int param : unit.params) elements += model.params[param].elements;
  return elements;
}

// Returns what each unit weighs when stages of equal parts are cut.
std::vector<std::int64_t> weights_of(const Model& model, const std::string& partition) {
  if (partition == "best") return work_of_units(model);
  const bool by_name = partition.starts_with(type_prefix);
  std::regex pattern;
  if (by_name) try {
      pattern.assign(partition.substr(type_prefix.size()), std::regex::icase);
    } catch (const std::regex_error& error) {
      throw ConfigError("pipeline.partition " + partition + ": " + error.what());
    }
  std::vector<std::int64_t> weights;
  for (const UnitDeclaration& unit : model.units)
    weights.push_back(by_name ? std::regex_search(unit.name, pattern) : elements_of(model, unit));
  return weights;
}

// Cuts into stages that weigh at most `most`, each as long as possible; none if that needs more
// stages. Later stages keep a unit each.
std::optional<std::vector<int>> cut(std::span<const std::int64_t> weights, std::int64_t most,
                                    int stages) {
  std::vector<int> first;
  std::int64_t sum = 0;
  const auto units = static_cast<int>(weights.size());
  for (int unit = 0; unit < units; ++unit) {
    const bool needed = units - unit <= stages - static_cast<int>(first.size());
    if (unit == 0 || sum + weights[unit] > most || needed) {
      if (weights[unit] > most || std::ssize(first) == stages) return {};
      first.push_back(unit);
      sum = 0;
    }
    sum += weights[unit];
  }
  return first;
}

// Reads "[0, 7, 13]": the first unit of each run.
std::vector<int> listed_units(const std::string& partition, int units, int stages, int chunks) {
  std::vector<int> first;
  std::istringstream text(partition.substr(1));
  for (int unit = 0; text >> unit; text.ignore(1)) first.push_back(unit);
  const bool rises = std::ranges::adjacent_find(first, std::greater_equal()) == first.end();
  if (std::ssize(first) != stages * chunks || !rises || first.front() != 0 || first.back() >= units)
    throw ConfigError("pipeline.partition is " + partition +
                      "; expected the first unit of each of " + std::to_string(stages * chunks) +
                      (chunks == 1 ? " stages" : " runs (stages times chunks)") +
                      ", from 0 on in rising order, below the " + std::to_string(units) +
                      " units of the model");
  return first;
}

[[noreturn]] void refuse(const std::string& what) {
  throw UsageError("a pipeline, and Engine::tasks(), " + what);
}

std::vector<int> uniform_cut(int units, int runs) {
  std::vector<int> first;
  for (int i = 0; i < runs; ++i) first.push_back(units * i / runs);
  return first;
}

// Moves the bounds of runs, one at a time, while that makes the heaviest stage lighter, or else the
// heaviest run, or all runs more alike.
class RunBalance {
 public:
  RunBalance(std::span<const std::int64_t> weights, int stages)
      : units_(static_cast<int>(weights.size())), stages_(stages), before_(1, 0) {
    for (const std::int64_t weight : weights) before_.push_back(before_.back() + weight);
  }

  using Cost = std::array<double, 3>;  // of the heaviest stage, and run; the sum of squares

  Cost cost_of(const std::vector<int>& first) const {
    std::vector<double> stages(stages_, 0);
    Cost cost{};
    for (std::size_t run = 0; run < first.size(); ++run) {
      const int end = run + 1 < first.size() ? first[run + 1] : units_;
      const auto weight = static_cast<double>(before_[end] - before_[first[run]]);
      cost[0] = std::max(cost[0], stages[run % stages_] += weight);
      cost[1] = std::max(cost[1], weight);
      cost[2] += weight * weight;
    }
    return cost;
  }

  std::vector<int> improved(std::vector<int> first) const {
    for (Cost cost = cost_of(first);;) {
      std::vector<int> best = first;
      for (std::size_t run = 1; run < first.size(); ++run) {
        std::vector<int> other = first;
        const int end = run + 1 < first.size() ? first[run + 1] : units_;
        for (other[run] = first[run - 1] + 1; other[run] < end; ++other[run])
          if (const Cost moved = cost_of(other); moved < cost) cost = moved, best = other;
      }
      if (best == first) return first;
      first = std::move(best);
    }
  }

 private:
  const int units_, stages_;
  std::vector<std::int64_t> before_;  // each unit
};

}  // namespace

std::vector<std::int64_t> work_of_units(const Model& model) {
  const bool has_work =
      std::ranges::any_of(model.units, [](const UnitDeclaration& unit) { return unit.work > 0; });
  std::vector<std::int64_t> work;
  for (const UnitDeclaration& unit : model.units)
    work.push_back(has_work ? unit.work : elements_of(model, unit));
  return work;
}

void check_units(const Model& model) {
  if (model.learns_order)
    refuse("need the order of units before the first pass: declare it, without learn_order()");
  if (model.any_micro_steps)
    refuse("have as many micro steps as the config says: leave any_micro_steps() out");
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    const UnitDeclaration& unit = model.units[u];
    if (unit.parent >= 0)
      refuse("take units one after another, and " + unit.name + " lies within another unit");
    if (unit.repeats)
      refuse("take each unit once, and " + unit.name + " repeats (ModelSpec::again())");
    if (unit.optional)
      refuse("open each unit for each micro batch, and " + unit.name + " is optional()");
    if (!unit.has_output && u + 1 < model.units.size())
      refuse("keep what units pass on, and " + unit.name +
             " declares none: add UnitSpec::output() with the shape for one sample");
    if (unit.has_output && unit.fused)
      refuse("end with a fused() unit, and " + unit.name + " declares an output");
  }
}

void check_pipeline(const Config& config, const EnginePlan& plan, const Model& model) {
  const CoreOptions& core = config.zero_core;
  const auto shared = std::ranges::find(model.params, true, &ParamDeclaration::in_stages);
  const bool offloads = config.zero_optimization.offload_optimizer.device != OffloadDevice::none;
  const char* refused_of_shared = offloads                ? "zero_optimization.offload_optimizer"
                                  : core.rank_independent ? "zero_core.rank_independent"
                                                          : nullptr;
  if (shared != model.params.end() && refused_of_shared)
    throw ConfigError(std::string(refused_of_shared) + " does not go with " + shared->name +
                      ", which units of several stages of a pipeline share: leave one of the two "
                      "out");
  const std::pair<bool, const char*> refused[] = {
      {plan.on.tensor.ranks > 1, "RuntimeOptions::tensor_ranks above 1"},
      {core.peer_copies > 0, "zero_core.peer_copies"},
      {!model.buffers.empty(), "buffers of units (UnitSpec::buffer())"},
      {!plan.buffers.all.empty(), "an optimizer with state for rows and columns"}};
  for (const auto& [present, name] : refused)
    if (present)
      throw ConfigError(
          std::string(name) +
          " does not go with pipeline.stages (RuntimeOptions::pipeline_stages): leave "
          "one of the two out");
}

std::vector<int> first_units(const Model& whole, const PipelineOptions& options, int stages) {
  check_units(whole);
  if (const std::string problem = chunks_problem(options); !problem.empty())
    throw ConfigError(problem);
  const std::string& partition = options.partition;
  const auto units = static_cast<int>(whole.units.size());
  if (std::int64_t{stages} * options.chunks > units)
    throw UsageError("the model has " + std::to_string(units) +
                     " units, and pipeline.stages (RuntimeOptions::pipeline_stages) is " +
                     std::to_string(stages) +
                     (options.chunks == 1 ? ""
                                          : ", each of " + std::to_string(options.chunks) +
                                                " runs (zero_core.pipeline.chunks)") +
                     ": at least one unit is needed for each");
  if (partition.starts_with('[')) return listed_units(partition, units, stages, options.chunks);
  const bool known = std::ranges::count(std::array{"best", "parameters", "uniform"}, partition) > 0;
  if (!known && !partition.starts_with(type_prefix))
    throw ConfigError("pipeline.partition is \"" + partition +
                      "\"; expected best, parameters, uniform, type:REGEX, or an array with the "
                      "first unit of each stage");
  if (partition != "uniform")
    return cut_evenly(weights_of(whole, partition), stages, options.chunks);
  return uniform_cut(units, stages * options.chunks);
}

namespace {

// Makes the model of a stage.
class StageMaker {
 public:
  StageMaker(const Model& whole, const std::vector<int>& first_units, const AxisPlace& place)
      : whole_(whole) {
    for (int run = place.rank; run < std::ssize(first_units); run += place.ranks) {
      const bool last = run + 1 == std::ssize(first_units);
      runs_.push_back(
          {first_units[run], last ? static_cast<int>(whole.units.size()) : first_units[run + 1]});
    }
  }

  Model make() {
    model_.states = whole_.states;
    for (const UnitRun& run : runs_) add_run(run);
    return std::move(model_);
  }

 private:
  // `run`: of units of the whole model.
  void add_run(const UnitRun& run) {
    const auto first = static_cast<int>(model_.units.size());
    const bool before = run.begin > 0, after = run.end < std::ssize(whole_.units);
    for (int u = run.begin; u < run.end; ++u) add_unit(u);
    model_.runs.push_back(
        {first,
         static_cast<int>(model_.units.size()),
         {before, after, before && trains_before(run.begin), after && trains_before(run.end)}});
    if (before) add_input(run.begin, model_.units[first]);
    // Received while the units of the stage may use the shared memory.
    for (KeptDeclaration& kept : model_.units.back().kept) kept.shared = -1;
  }
  bool trains_before(int unit) const {
    return std::ranges::any_of(whole_.params, [&](const ParamDeclaration& param) {
      return param.unit < unit && param.options.trainable;
    });
  }
  bool lies_inside(int unit) const {
    return std::ranges::any_of(runs_, [unit](const UnitRun& run) { return run.has(unit); });
  }
  // Whether a unit of another stage uses the parameter of a unit of this one, or the reverse.
  bool is_shared(int param) const {
    const bool own = lies_inside(whole_.params[param].unit);
    for (int u = 0; u < std::ssize(whole_.units); ++u)
      if (lies_inside(u) != own && std::ranges::count(whole_.borrowed(u), param) > 0) return true;
    return false;
  }

  void add_unit(int number) {
    const auto own = static_cast<int>(model_.units.size());
    UnitDeclaration unit = whole_.units[number];
    for (int& param : unit.params) param = add_param(param, own);
    for (const int param : whole_.borrowed(number))
      if (!lies_inside(whole_.params[param].unit) && model_.find(whole_.params[param].name) < 0) {
        unit.params.push_back(add_param(param, own));
        model_.params.back().elsewhere = true;
        model_.params.back().short_name = model_.params.back().name;  // may be that of an own one
      }
    model_.index_of_unit.emplace(unit.name, own);
    model_.order.push_back(own);
    model_.units.push_back(std::move(unit));
  }

  int add_param(int number, int unit) {
    const auto index = static_cast<int>(model_.params.size());
    ParamDeclaration param = whole_.params[number];
    param.unit = unit;
    param.in_stages = is_shared(number);
    model_.index_of_param.emplace(param.name, index);
    model_.other_names.insert(param.also_named.begin(), param.also_named.end());
    model_.params.push_back(std::move(param));
    return index;
  }

  // `begin`: the number of the unit in the whole model.
  void add_input(int begin, UnitDeclaration& unit) {
    KeptDeclaration input =
        *std::ranges::find(whole_.units[begin - 1].kept, output_name, &KeptDeclaration::name);
    input.name = input_name;
    unit.kept.push_back(input);
    input.name = input_gradient_name;
    input.of_backward = true;
    unit.kept.push_back(input);
  }

  const Model& whole_;
  std::vector<UnitRun> runs_;  // of units of the whole model
  Model model_;
};

}  // namespace

const ParamDeclaration* shared_by_runs(const Model& whole, const std::vector<int>& first_units,
                                       int stages) {
  std::map<std::pair<int, std::ptrdiff_t>, std::ptrdiff_t> runs;  // by parameter and stage
  for (int unit = 0; unit < std::ssize(whole.units); ++unit)
    for (const int param : whole.borrowed(unit))
      for (const int user : {whole.params[param].unit, unit}) {
        const auto run = std::ranges::upper_bound(first_units, user) - first_units.begin() - 1;
        const auto [first, added] = runs.try_emplace({param, run % stages}, run);
        if (first->second != run) return &whole.params[param];
      }
  return nullptr;
}

Model stage_of(const Model& whole, const std::vector<int>& first_units, const AxisPlace& place) {
  if (const ParamDeclaration* shared = shared_by_runs(whole, first_units, place.ranks))
    throw ConfigError("zero_core.pipeline.chunks gives two runs of a stage units that share " +
                      shared->name +
                      ": cut the units otherwise (pipeline.partition), or leave chunks out");
  return StageMaker(whole, first_units, place).make();
}

}  // namespace zero::detail

std::vector<int> zero::cut_evenly(std::span<const std::int64_t> weights, int stages, int chunks) {
  const int runs = stages * chunks;
  if (runs < 1 || std::ssize(weights) < runs)
    throw UsageError("cut_evenly() has " + std::to_string(weights.size()) + " units for " +
                     std::to_string(runs) +
                     (chunks == 1 ? " stages; expected at least one unit for each"
                                  : " runs of stages; expected at least one unit for each"));
  std::int64_t low = 0, high = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (detail::cut(weights, middle, runs))
      high = middle;
    else
      low = middle + 1;
  }
  const std::vector<int> first = *detail::cut(weights, low, runs);
  if (chunks == 1) return first;
  const detail::RunBalance balance(weights, stages);
  const std::vector<int> starts[] = {
      balance.improved(first),
      balance.improved(detail::uniform_cut(static_cast<int>(weights.size()), runs))};
  return *std::ranges::min_element(starts, {}, [&](const auto& s) { return balance.cost_of(s); });
}
