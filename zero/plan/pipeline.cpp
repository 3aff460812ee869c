#include "zero/plan/pipeline.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <utility>

namespace zero::detail {

namespace {

constexpr std::string_view type_prefix = "type:";

// Returns what each unit weighs when stages of equal parts are cut.
std::vector<std::int64_t> weights_of(const Model& model, const std::string& partition) {
  const bool has_work =
      std::ranges::any_of(model.units, [](const UnitDeclaration& unit) { return unit.work > 0; });
  const bool by_name = partition.starts_with(type_prefix);
  std::regex pattern;
  if (by_name) try {
      pattern.assign(partition.substr(type_prefix.size()), std::regex::icase);
    } catch (const std::regex_error& error) {
      throw ConfigError("pipeline.partition " + partition + ": " + error.what());
    }
  std::vector<std::int64_t> weights;
  for (const UnitDeclaration& unit : model.units) {
    std::int64_t weight = 0;
    if (by_name)
      weight = std::regex_search(unit.name, pattern) ? 1 : 0;
    else if (partition == "best" && has_work)
      weight = unit.work;
    else
      for (const int param : unit.params) weight += model.params[param].elements;
    weights.push_back(weight);
  }
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

// Reads "[0, 7, 13]": the first unit of each stage.
std::vector<int> listed_units(const std::string& partition, int units, int stages) {
  std::vector<int> first;
  std::istringstream text(partition.substr(1));
  for (int unit = 0; text >> unit; text.ignore(1)) first.push_back(unit);
  const bool rises = std::ranges::adjacent_find(first, std::greater_equal()) == first.end();
  if (std::ssize(first) != stages || !rises || first.front() != 0 || first.back() >= units)
    throw ConfigError("pipeline.partition is " + partition +
                      "; expected the first unit of each of " + std::to_string(stages) +
                      " stages, from 0 on in rising order, below the " + std::to_string(units) +
                      " units of the model");
  return first;
}

[[noreturn]] void refuse(const std::string& what) {
  throw UsageError("a pipeline, and Engine::tasks(), " + what);
}

}  // namespace

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

std::vector<int> first_units(const Model& whole, const std::string& partition, int stages) {
  check_units(whole);
  const auto units = static_cast<int>(whole.units.size());
  if (units < stages)
    throw UsageError("pipeline.stages (RuntimeOptions::pipeline_stages) is " +
                     std::to_string(stages) + ", and the model has " + std::to_string(units) +
                     " units: a stage needs at least one");
  if (partition.starts_with('[')) return listed_units(partition, units, stages);
  const bool known = std::ranges::count(std::array{"best", "parameters", "uniform"}, partition) > 0;
  if (!known && !partition.starts_with(type_prefix))
    throw ConfigError("pipeline.partition is \"" + partition +
                      "\"; expected best, parameters, uniform, type:REGEX, or an array with the "
                      "first unit of each stage");
  if (partition != "uniform") return cut_evenly(weights_of(whole, partition), stages);
  std::vector<int> first;
  for (int i = 0; i < stages; ++i) first.push_back(units * i / stages);
  return first;
}

namespace {

// Makes the model of a stage.
class StageMaker {
 public:
  StageMaker(const Model& whole, const std::vector<int>& first_units, int stage)
      : whole_(whole),
        begin_(first_units[stage]),
        is_last_(stage + 1 == std::ssize(first_units)),
        end_(is_last_ ? static_cast<int>(whole.units.size()) : first_units[stage + 1]) {}

  Model make() {
    model_.states = whole_.states;
    const bool before = begin_ > 0;
    model_.links = {before, !is_last_, before && trains_before(begin_),
                    !is_last_ && trains_before(end_)};
    for (int u = begin_; u < end_; ++u) add_unit(u);
    if (before) add_input();
    // Received while the units of the stage may use the shared memory.
    for (KeptDeclaration& kept : model_.units.back().kept) kept.shared = -1;
    return std::move(model_);
  }

 private:
  bool trains_before(int unit) const {
    return std::ranges::any_of(whole_.params, [&](const ParamDeclaration& param) {
      return param.unit < unit && param.options.trainable;
    });
  }
  bool lies_inside(int unit) const { return unit >= begin_ && unit < end_; }
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

  void add_input() {
    KeptDeclaration input =
        *std::ranges::find(whole_.units[begin_ - 1].kept, output_name, &KeptDeclaration::name);
    input.name = input_name;
    model_.units.front().kept.push_back(input);
    input.name = input_gradient_name;
    input.of_backward = true;
    model_.units.front().kept.push_back(input);
  }

  const Model& whole_;
  const int begin_;
  const bool is_last_;
  const int end_;
  Model model_;
};

}  // namespace

Model stage_of(const Model& whole, const std::vector<int>& first_units, int stage) {
  return StageMaker(whole, first_units, stage).make();
}

std::vector<HalfPass> schedule_of(std::string_view schedule, const AxisPlace& place,
                                  const StageLinks& links, int micro_batches) {
  std::vector<HalfPass> list;
  const auto receive = [&](int micro_batch) {
    if (links.before && micro_batch < micro_batches) list.push_back({Op::receive, micro_batch});
  };
  const auto forward = [&](int micro_batch) {
    list.push_back({Op::forward, micro_batch});
    if (links.after) list.push_back({Op::send, micro_batch});
  };
  const auto backward = [&](int micro_batch) {
    if (links.gradient_after) list.push_back({Op::receive_gradient, micro_batch});
    list.push_back({Op::backward, micro_batch});
  };
  const auto send_gradient = [&](int micro_batch) {
    if (links.gradient_before) list.push_back({Op::send_gradient, micro_batch});
  };
  // Micro batches whose forward comes before the first backward.
  const int ahead =
      schedule == "gpipe" ? micro_batches : std::min(place.ranks - place.rank, micro_batches);
  for (int m = 0; m < ahead; ++m) {
    receive(m);
    forward(m);
  }
  // A stage receives the next input before it sends a gradient, because the stage before sends that
  // input before it receives the gradient.
  for (int m = 0; m < micro_batches; ++m) {
    const int next = m + ahead;
    backward(m);
    receive(next);
    send_gradient(m);
    if (next < micro_batches) forward(next);
  }
  return list;
}

int in_flight_of(const std::vector<HalfPass>& schedule) {
  std::set<int> begun;
  std::size_t most = 1;
  for (const auto& [op, micro_batch] : schedule) {
    if (op == Op::receive || op == Op::forward) begun.insert(micro_batch);
    if (op == Op::backward) begun.erase(micro_batch);
    most = std::max(most, begun.size());
  }
  return static_cast<int>(most);
}

namespace {

// The lists of all stages while they run.
class Rehearsal {
 public:
  explicit Rehearsal(const std::vector<std::vector<HalfPass>>& stages)
      : stages_(stages),
        next_(stages.size(), 0),
        present_(stages.size()),
        listed_(stages.size()),
        done_(stages.size()) {
    for (std::size_t s = 0; s < stages.size(); ++s)
      for (const HalfPass& half : stages[s]) listed_[s].insert(half.op);
  }

  std::string run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t s = 0; s < stages_.size(); ++s)
        while (const HalfPass* half = next_of(s)) {
          const std::string fault = problem(s, *half);
          if (!fault.empty()) return fault;
          if (!take(s, *half)) break;
          moves = true;
        }
    }
    for (std::size_t s = 0; s < stages_.size(); ++s)
      if (const HalfPass* half = next_of(s))
        return text(s, *half) + " waits for ever for the other stage";
    return "";
  }

 private:
  const HalfPass* next_of(std::size_t stage) const {
    return next_[stage] < stages_[stage].size() ? &stages_[stage][next_[stage]] : nullptr;
  }
  static std::string text(std::size_t stage, const HalfPass& half) {
    return std::string(name_of(half.op)) + " of micro batch " + std::to_string(half.micro_batch) +
           " in stage " + std::to_string(stage);
  }
  bool has(std::size_t stage, Op op, int micro_batch) const {
    return present_[stage].contains({op, micro_batch});
  }
  bool lists(std::size_t stage, Op op) const { return listed_[stage].contains(op); }

  // Each work needs what comes before it, if the list has such work at all.
  std::string problem(std::size_t stage, const HalfPass& half) const {
    const auto lacks = [&](Op before) {
      return lists(stage, before) && !has(stage, before, half.micro_batch);
    };
    Op before{};
    if (half.op == Op::forward) before = Op::receive;
    if (half.op == Op::send) before = Op::forward;
    if (half.op == Op::backward) before = lacks(Op::forward) ? Op::forward : Op::receive_gradient;
    if (half.op == Op::send_gradient) before = Op::backward;
    const bool needs = half.op != Op::receive && half.op != Op::receive_gradient;
    if (needs && lacks(before)) return text(stage, half) + " comes before the " + name_of(before);
    if (half.op == Op::backward && half.micro_batch != done_[stage])
      return text(stage, half) + " comes when micro batch " + std::to_string(done_[stage]) +
             " is next";
    return "";
  }

  // Whether the work took place. Transfers need the neighbor, whose own next work it is.
  bool take(std::size_t stage, const HalfPass& half) {
    std::optional<std::pair<std::size_t, Op>> peer;
    if (half.op == Op::receive) peer = {stage - 1, Op::send};
    if (half.op == Op::send) peer = {stage + 1, Op::receive};
    if (half.op == Op::receive_gradient) peer = {stage + 1, Op::send_gradient};
    if (half.op == Op::send_gradient) peer = {stage - 1, Op::receive_gradient};
    if (peer) {
      const HalfPass* other = peer->first < stages_.size() ? next_of(peer->first) : nullptr;
      if (other == nullptr || other->op != peer->second || other->micro_batch != half.micro_batch)
        return false;
      present_[peer->first].insert({other->op, other->micro_batch});
      ++next_[peer->first];
    }
    if (half.op == Op::backward) ++done_[stage];
    present_[stage].insert({half.op, half.micro_batch});
    ++next_[stage];
    return true;
  }

  const std::vector<std::vector<HalfPass>>& stages_;
  std::vector<std::size_t> next_;                      // per stage: the work that comes next
  std::vector<std::set<std::pair<Op, int>>> present_;  // per stage: work that took place
  std::vector<std::set<Op>> listed_;                   // per stage: what the list has at all
  std::vector<int> done_;                              // per stage: backward halves
};

}  // namespace

std::string find_schedule_fault(const std::vector<std::vector<HalfPass>>& stages) {
  return Rehearsal(stages).run();
}

}  // namespace zero::detail

std::vector<int> zero::cut_evenly(std::span<const std::int64_t> weights, int stages) {
  if (stages < 1 || std::ssize(weights) < stages)
    throw UsageError("cut_evenly() has " + std::to_string(weights.size()) + " units for " +
                     std::to_string(stages) + " stages; expected at least one unit for each");
  std::int64_t low = 0, high = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (detail::cut(weights, middle, stages))
      high = middle;
    else
      low = middle + 1;
  }
  return *detail::cut(weights, low, stages);
}
