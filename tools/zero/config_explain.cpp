// zero config explain: every value of a file with its source and effect, or the facts of a key.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "optim/rule_table.h"
#include "tools/options/number_options.h"
#include "tools/zero/config.h"
#include "tools/zero/explanation.h"
#include "zero/base/error.h"
#include "zero/plan/placement.h"
#include "zero/plan/precision.h"

namespace zero::tool {
namespace {

using namespace config_schemas;

void print_entries(const Loaded& loaded) {
  std::size_t path = 0, value = 0;
  for (const Entry& entry : loaded.entries) {
    path = std::max(path, entry.path.size());
    value = std::max(value, std::min<std::size_t>(entry.value.size(), 24));
  }
  for (const Entry& entry : loaded.entries)
    std::printf("%-*s  %-*s  %-8s  %s\n", static_cast<int>(path), entry.path.c_str(),
                static_cast<int>(value), entry.value.c_str(), name_of(entry.source),
                effect_of(entry).c_str());
}

// "2", "2/N": bytes per parameter on a rank, and the name of the number of ranks that share them.
std::string share(int bytes, detail::Placement placement, const char* over) {
  const bool shared = placement == detail::Placement::shard && bytes > 0;
  return std::to_string(bytes) + (shared ? over : "");
}

int states_of(const optim::OptimizerOptions& options, bool auxiliary) {
  return static_cast<int>(optim::rule_of(optim::options_of_rule(options, auxiliary)).states.size());
}

// Returns the requested grid: of the given number of ranks, or of two groups if no number is given.
detail::ProcessGrid grid_of(const ConfigOptions& options, const Config& config) {
  if (options.ranks > 0)
    return detail::grid_for(config.zero_core, options.ranks, options.ranks, 1,
                            config.pipeline.stages);
  const auto group = static_cast<int>(config.zero_core.shard_group_size.value_or(0));
  return group > 0 ? detail::ProcessGrid{2, group} : detail::ProcessGrid{};
}

// Returns the bytes of sums that are kept for groups of micro batches, with a comma, or nothing.
std::string open_groups(const ConfigOptions& options, const Config& config) {
  const std::int64_t group = config.zero_core.rank_independent_group;
  if (!config.zero_core.rank_independent || group == 1) return "";
  if (options.ranks > 0 && (options.ranks % group == 0 ||
                            resolve_batch(config.batch, options.ranks, true).accumulation == 1))
    return "";
  const std::string unless =
      options.ranks > 0 ? "" : " unless N is a multiple of " + std::to_string(group);
  return ", sums of groups of micro batches 4/N" + unless;
}

// Returns strategy, dtypes and bytes, each by name.
Pairs plan_lines(const ConfigOptions& options, const Config& config) {
  const detail::ProcessGrid grid = grid_of(options, config);
  const detail::Strategy plan =
      detail::strategy_for(config.zero_optimization, config.zero_core, grid);
  const detail::Precision precision = detail::precision_for(config, std::max(options.ranks, 1));
  const auto model = static_cast<int>(size_of(precision.compute));
  const auto gradient = static_cast<int>(size_of(precision.accumulation));
  const int master = precision.master == precision.compute ? 0 : 4;
  const auto state = static_cast<int>(size_of(precision.state));
  const int of_rule = master + state * states_of(config.optimizer, false);
  const bool split = optim::has_auxiliary_rule(config.optimizer);
  const int states = split ? master + state * states_of(config.optimizer, true) : of_rule;
  const bool groups = grid.replicas() > 1 && grid.shard_ranks() > 1;
  const char* const all = "/N";
  const char* const group = groups ? "/S" : all;
  const char* const updates = plan.optimizer_across == detail::Placement::shard ? all : group;
  const std::int64_t copies = config.zero_optimization.hpz_partition_size;
  const bool copied = copies > 1 && plan.parameter == detail::Placement::shard && !groups;
  Pairs lines = {
      {"strategy",
       plan.strategy +
           (groups ? ", in groups of S = " + std::to_string(grid.shard_ranks()) + " ranks" : "")},
      {"dtypes", std::string("parameters and gradients ") + name_of(precision.compute) +
                     ", between ranks " + name_of(precision.wire) + ", added up " +
                     name_of(precision.accumulation) + "; master weights " +
                     name_of(precision.master) + ", moments " + name_of(precision.state)},
      {"bytes per parameter on each of N ranks",
       "parameters " + share(model, plan.parameter, group) +
           (copied ? ", their second copy " + std::to_string(model) + "/" + std::to_string(copies)
                   : "") +
           ", gradients " + share(gradient, plan.gradient, group) + open_groups(options, config) +
           ", optimizer " + share(states, plan.optimizer, updates) +
           (split ? ", of " + config.optimizer.type + "'s matrices " +
                        share(of_rule, plan.optimizer, updates)
                  : "") +
           "; units in use and activations come on top"},
      {"bytes, traffic and time of a model",
       "zero plan --deepspeed_config " + options.file + " --params 7B"}};
  if (grid.ranks() > 1 && options.ranks > 0)
    lines.insert(lines.begin() + 1, {"grid of ranks", "rank " + std::to_string(grid.ranks() - 1) +
                                                          " of " + std::to_string(grid.ranks()) +
                                                          " = " + grid.place_of(grid.ranks() - 1)});
  return lines;
}

void print_exchanges(const std::vector<detail::Exchange>& exchanges, const ConfigOptions& options) {
  if (exchanges.empty()) return;
  std::printf("\nexchanges of one block on %d ranks:\n", options.ranks);
  std::string when;
  for (const detail::Exchange& exchange : exchanges) {
    if (exchange.when != when) std::printf("  %s\n", (when = exchange.when).c_str());
    const std::string times =
        exchange.times > 1 ? ", " + std::to_string(exchange.times) + " times" : "";
    for (const std::string& route : exchange.routes)
      std::printf("    %s%s: %s\n", exchange.op.c_str(), times.c_str(), route.c_str());
  }
}

// Returns the options for the ranks of one stage of a pipeline.
ConfigOptions in_one_stage(ConfigOptions options, const Config& config) {
  const int stages = config.pipeline.stages;
  if (options.ranks % stages != 0)
    throw ConfigError("pipeline.stages " + std::to_string(stages) + " does not divide " +
                      std::to_string(options.ranks) + " ranks");
  options.ranks /= stages;
  return options;
}

void explain_file(const ConfigOptions& given) {
  Loaded loaded = given.load();
  const ConfigOptions options = in_one_stage(given, loaded.config);
  Explanation explanation{loaded, std::nullopt, {}, {}};
  if (options.ranks > 0) {
    explanation.batch =
        resolve_batch(loaded.config.batch, options.ranks, loaded.config.zero_core.rank_independent);
    fill_batch(loaded, *explanation.batch);
  }
  const Pairs plan = plan_lines(options, loaded.config);
  if (options.ranks > 1)
    explanation.exchanges = block_exchanges(loaded.config, options.planned_run());
  if (options.json) {
    for (const auto& [name, text] : plan) explanation.plan[name] = text;
    std::fputs(to_json(explanation).c_str(), stdout);
    return;
  }
  print_imported(loaded);
  print_entries(loaded);
  std::printf("\n");
  print_notices(loaded);
  print_batch(loaded.config, options.ranks);
  std::printf("\n");
  for (const auto& [name, text] : plan) std::printf("%s: %s\n", name.c_str(), text.c_str());
  print_exchanges(explanation.exchanges, options);
}

void explain_key(const ConfigOptions& options) {
  const std::vector<const Key*> keys = keys_named(options.file);
  if (options.json) {
    std::fputs(to_json(keys).c_str(), stdout);
    return;
  }
  for (const Key* key : keys) {
    if (key != keys.front()) std::printf("\n");
    print_pairs(key->path.c_str(), facts_of(*key));
  }
}

// A file takes precedence over a key with the same name.
bool names_file(const std::string& text) {
  std::error_code ignored;
  const auto ends = [&](const char* suffix) { return text.ends_with(suffix); };
  return text.find('/') != std::string::npos || ends(".json") || ends(".yaml") || ends(".yml") ||
         (std::filesystem::exists(text, ignored) && !std::filesystem::is_directory(text, ignored));
}

}  // namespace

void add_config_explain(CLI::App& config) {
  auto options = std::make_shared<ConfigOptions>();
  CLI::App* command = config.add_subcommand(
      "explain", "Show every value of a file, its origin and its effect; or explain one key");
  command
      ->add_option("FILE|KEY", options->file,
                   "A file as for check; or a key or section, such as zero_optimization.stage, "
                   "or its last name")
      ->required();
  add_file_options(*command, *options);
  command->option_defaults()->group(run_group);
  add_number(*command, "--per-node", options->per_node, "Ranks per node; default: all of them");
  command->option_defaults()->group("Results");
  command->add_flag("--json", options->json, "One JSON object, for other programs");
  command->callback([options] {
    if (names_file(options->file))
      explain_file(*options);
    else
      explain_key(*options);
  });
}

}  // namespace zero::tool
