#include "tools/zero/config_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "zero/base/error.h"
#include "zero/plan/engine_plan.h"
#include "zero/plan/model.h"
#include "zero/plan/route_text.h"

namespace zero::tool {
namespace {

using namespace config_schemas;

// Larger numbers of ranks are refused for no other reason, and would only take time.
constexpr int most_planned_ranks = 256;
constexpr double most_parameters = 1e14;
constexpr std::int64_t most_layers = 1000;

// Kind of the parameters in the file's named groups, because some update rules distinguish matrices
// from vectors.
enum class GroupKind : std::uint8_t { vectors, matrices };

// Returns a decoder with a vocabulary of 16 times its width: embedding, blocks, head. Every group
// that the file names has a parameter, in the first block.
ModelSpec generic_model(const ModelSize& size, const Config& config, GroupKind kind) {
  const double share =
      static_cast<double>(size.parameters) / static_cast<double>(12 * size.layers + 32);
  const auto width = std::max<std::int64_t>(1, std::llround(std::sqrt(share)));
  const Shape grouped = kind == GroupKind::matrices ? Shape{width, width} : Shape{width};
  const ParamOptions no_decay{.decay = false};
  ModelSpec model;
  model.unit("embed").param("tokens", {16 * width, width});
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    UnitSpec& block = model.unit("block." + std::to_string(layer));
    block.param("norm", {width}, no_decay)
        .param("attention", {4 * width, width})
        .param("up", {4 * width, width})
        .param("down", {width, 4 * width});
    int index = 0;
    if (layer == 0)
      for (const auto& [name, options] : config.zero_core.param_groups)
        block.param("group_" + std::to_string(index++), grouped, {.group = name});
  }
  model.unit("head").param("norm", {width}, no_decay).param("lm_head", {16 * width, width}).fused();
  return model;
}

// Returns the config after filling in the values that the file leaves open.
Config closed_config(const Config& config, const PlannedRun& run) {
  Config closed = config;
  if (config.zero_core.rank_independent) {
    // Without a number of ranks elasticity chooses no batch, so plan a batch that fits any.
    if (config.batch.elasticity.enabled && !run.ranks) closed.batch = {most_planned_ranks, 1, 0};
  } else if (run.ranks) {
    const Batch batch = resolve_batch(config.batch, *run.ranks);
    closed.batch = {0, batch.micro, batch.accumulation};
  } else {
    closed.batch = {0, 1, std::max<std::int64_t>(1, config.batch.gradient_accumulation_steps)};
  }
  if (closed.scheduler.total_num_steps == 0)
    closed.scheduler.total_num_steps = run.total_steps.value_or(1'000'000);
  return closed;
}

// Returns the engine's reason to refuse the run, or an empty text.
std::string refusal(const Config& config, const ModelSpec& model, int ranks, bool on_gpu,
                    std::optional<std::int64_t> total_steps) {
  try {
    const detail::EnginePlan plan(model.declared(), config, {0, ranks, on_gpu});
    if (total_steps && *total_steps > 0)
      for (const detail::UpdateGroup& group : plan.updates.groups())
        if (group.cycles_betas) group.schedule->betas(*total_steps);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

// Returns the first reason of several runs, or an empty text if any is accepted.
std::string refusal_of_all(const Config& config, const PlannedRun& run, bool on_gpu) {
  const ModelSize size = run.model.value_or(ModelSize{});
  std::vector<int> ranks{1, 2};
  // Groups must divide the number of ranks.
  for (const std::int64_t group :
       {config.zero_core.shard_group_size.value_or(0), config.zero_optimization.hpz_partition_size})
    if (group > 1 && 2 * group <= most_planned_ranks) ranks = {static_cast<int>(2 * group)};
  if (run.ranks) ranks = {std::min(*run.ranks, most_planned_ranks)};
  std::string first;
  for (const GroupKind kind : {GroupKind::vectors, GroupKind::matrices}) {
    const ModelSpec model = generic_model(size, config, kind);
    for (const int count : ranks) {
      const std::string reason = refusal(config, model, count, on_gpu, run.total_steps);
      if (reason.empty()) return "";
      if (first.empty()) first = reason;
    }
  }
  return first;
}

// Returns the place of the first key that the text names and the file gives, or of a key of the
// same section if the file does not give the key itself.
std::string place_in(const Loaded& loaded, const std::string& text) {
  constexpr std::string_view letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
  for (std::size_t begin = 0; begin < text.size();) {
    begin = std::min(text.find_first_of(letters, begin), text.size());
    const std::size_t end = std::min(text.find_first_not_of(letters, begin), text.size());
    std::string word = text.substr(begin, end - begin);
    begin = end;
    while (word.ends_with('.')) word.pop_back();
    for (const Entry& entry : loaded.entries)
      if (entry.path == word && !entry.place.empty()) return entry.place;
    const Key* key = find_key(word);
    if (key == nullptr) continue;
    const std::string section(key->type == Type::section ? key->path : section_of(key->path));
    const Entry* near = nullptr;
    for (const Entry& entry : loaded.entries) {
      const bool inside = !section.empty() && entry.path.starts_with(section + ".");
      if (near == nullptr && inside && !entry.place.empty()) near = &entry;
    }
    if (near != nullptr) return near->place;
  }
  return "";
}

std::string with_places(const Loaded& loaded, const std::string& file, const std::string& message) {
  std::istringstream lines(message);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = place_in(loaded, line);
    result += (result.empty() ? "" : "\n") + (place.empty() ? file : place) + ": " + line;
  }
  return result;
}

double multiplier(const std::string& suffix) {
  if (suffix.empty()) return 1;
  if (suffix == "K" || suffix == "k") return 1e3;
  if (suffix == "M" || suffix == "m") return 1e6;
  if (suffix == "B" || suffix == "b" || suffix == "G" || suffix == "g") return 1e9;
  return suffix == "T" || suffix == "t" ? 1e12 : 0;
}

}  // namespace

ModelSize parse_model_size(const std::string& text) {
  ModelSize size;
  const std::size_t cross = text.find_first_of("xX");
  const std::string parameters = text.substr(0, cross);
  double value = 0;
  const char* end = parameters.data() + parameters.size();
  const auto [rest, error] = std::from_chars(parameters.data(), end, value);
  const double count = error == std::errc() ? value * multiplier({rest, end}) : 0;
  bool good = count >= 1 && count <= most_parameters;
  if (cross != std::string::npos) {
    const char* first = text.data() + cross + 1;
    const char* last = text.data() + text.size();
    const auto [stop, wrong] = std::from_chars(first, last, size.layers);
    good = good && wrong == std::errc() && stop == last && size.layers >= 1 &&
           size.layers <= most_layers;
  }
  if (!good)
    throw ConfigError("--model " + text +
                      ": expected a number of parameters, and of layers, such as 124M, 7e9 or "
                      "7Bx32; zero plan --model NAME plans a model of the trainer");
  size.parameters = std::llround(count);
  return size;
}

std::vector<detail::Exchange> block_exchanges(const Config& config, const PlannedRun& run) {
  const int ranks = run.ranks.value_or(1);
  const int on_node = run.per_node < ranks ? run.per_node : 0;
  if (on_node > 0 && ranks % on_node != 0)
    throw ConfigError("--world-size " + std::to_string(ranks) + " is no multiple of --per-node " +
                      std::to_string(on_node));
  const ModelSize size = run.model.value_or(ModelSize{.layers = 8});
  const ModelSpec model = generic_model(size, config, GroupKind::matrices);
  const detail::EnginePlan plan(
      model.declared(), closed_config(config, run),
      {.ranks = ranks, .on_gpu = run.on_gpu.value_or(false), .node_ranks = on_node});
  const std::vector<detail::FlatUnit>& units = plan.layout.flat_units;
  // The first and last blocks may still be in slots at the next use.
  const std::string middle = "block." + std::to_string(size.layers / 2);
  const auto block = std::ranges::find(units, middle, &detail::FlatUnit::name);
  return detail::exchanges_of(plan, static_cast<int>(block - units.begin()));
}

std::vector<std::string> check_plan(const Loaded& loaded, const std::string& file,
                                    const PlannedRun& run) {
  const Config config = closed_config(loaded.config, run);
  std::string reasons[2];
  for (const bool on_gpu : {false, true})
    if (run.on_gpu.value_or(on_gpu) == on_gpu)
      reasons[on_gpu] = refusal_of_all(config, run, on_gpu);
  const bool refused = run.on_gpu ? !reasons[*run.on_gpu].empty()
                                  : !reasons[false].empty() && !reasons[true].empty();
  if (refused) throw ConfigError(with_places(loaded, file, reasons[run.on_gpu.value_or(false)]));
  std::vector<std::string> notices;
  if (!config.zero_core.param_groups.empty())
    notices.push_back(
        "zero_core.param_groups: a run refuses a group that its program puts no parameter in; "
        "train_gpt has none");
  for (const bool on_gpu : {false, true})
    if (!reasons[on_gpu].empty())
      notices.push_back(std::string("refused on ") + (on_gpu ? "GPU" : "CPU") +
                        " ranks: " + with_places(loaded, file, reasons[on_gpu]));
  return notices;
}

}  // namespace zero::tool
