// zero config: check and explain the file of a training run, and write one to start from.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

#include "config_schemas/explanation.h"
#include "config_schemas/load.h"
#include "optim/optimizer.h"
#include "tools/zero/commands.h"
#include "zero/base/error.h"
#include "zero/config.h"
#include "zero/plan/placement.h"
#include "zero/state/precision.h"

namespace zero::tool {
namespace {

using namespace config_schemas;

struct ConfigOptions {
  std::string file;
  std::vector<std::string> settings;
  TrainerValues values;
  int ranks = 0;  // 0: not given
  std::int64_t parameters = 0;
  bool json = false;

  Loaded load() const {
    Text overrides;
    for (const std::string& setting : settings) {
      const auto equals = setting.find('=');
      if (equals == std::string::npos)
        throw ConfigError("--set " + setting + ": must be PATH=VALUE");
      overrides[setting.substr(0, equals)] = setting.substr(equals + 1);
    }
    return load_file(file, overrides, values);
  }
};

void add_options(CLI::App& command, ConfigOptions& options) {
  command
      .add_option("FILE", options.file,
                  "DeepSpeed JSON, Accelerate YAML or JSON, or a Trainer's arguments")
      ->required();
  command
      .add_option("--world-size", options.ranks, "Number of ranks: checks the batch sizes for it")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--set", options.settings, "One value instead of the file's, as PATH=VALUE")
      ->allow_extra_args(false);
  command.add_option("--hidden-size", options.values.hidden_size,
                     "Of the model, where the file says \"auto\"");
  command.add_option("--total-steps", options.values.total_steps,
                     "Optimizer steps, where the file says \"auto\"");
  command.add_option("--micro-batch", options.values.micro_batch_size,
                     "Samples per rank and micro step, where the file says \"auto\"");
}

// Lines of two columns, the first as wide as its longest cell.
void print_pairs(const char* title, const std::vector<std::pair<std::string, std::string>>& rows) {
  if (rows.empty()) return;
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.first.size());
  std::printf("%s\n", title);
  for (const auto& [left, right] : rows)
    std::printf("  %-*s  %s\n", static_cast<int>(width), left.c_str(), right.c_str());
}

void print_imported(const Loaded& loaded) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const ImportedKey& key : loaded.imported) rows.emplace_back(key.key, key.effect);
  print_pairs("imported:", rows);
}

void print_notices(const Loaded& loaded) {
  // Those about imported keys are in the table already.
  for (std::size_t i = loaded.imported.size(); i < loaded.config.notices.size(); ++i)
    std::printf("notice: %s\n", loaded.config.notices[i].c_str());
}

void print_batch(const Config& config, int ranks) {
  if (ranks == 0) return;
  const Batch batch = resolve_batch(config.batch, ranks);
  std::printf(
      "batch on %d rank%s: %lld samples per step = micro batch %lld x accumulation %lld x %d\n",
      ranks, ranks == 1 ? "" : "s", static_cast<long long>(batch.global),
      static_cast<long long>(batch.micro), static_cast<long long>(batch.accumulation), ranks);
}

void check(const ConfigOptions& options) {
  const Loaded loaded = options.load();
  print_imported(loaded);
  print_notices(loaded);
  print_batch(loaded.config, options.ranks);
  std::printf("%s: good\n", options.file.c_str());
}

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

// "2", "2/N": bytes per parameter on a rank.
std::string share(int bytes, detail::Rest rest) {
  return std::to_string(bytes) + (rest == detail::Rest::shard && bytes > 0 ? "/N" : "");
}

double bytes_on(int bytes, detail::Rest rest, int ranks) {
  return rest == detail::Rest::shard ? static_cast<double>(bytes) / ranks : bytes;
}

int states_of(const optim::OptimizerOptions& options, bool auxiliary) {
  const auto rule = optim::create_optimizer(optim::options_of_rule(options, auxiliary));
  return static_cast<int>(rule->state_names().size());
}

// Strategy, dtypes and bytes, each by its name.
std::vector<std::pair<std::string, std::string>> plan_lines(const ConfigOptions& options,
                                                            const Config& config) {
  const detail::Placement plan = detail::placement_for(config.zero_optimization, config.zero_core);
  const detail::Precision precision = detail::precision_for(config, std::max(options.ranks, 1));
  const auto model = static_cast<int>(size_of(precision.compute));
  const auto gradient = static_cast<int>(size_of(precision.accumulation));
  const int master = precision.master == precision.compute ? 0 : 4;
  const auto state = static_cast<int>(size_of(precision.state));
  const int of_rule = master + state * states_of(config.optimizer, false);
  const bool split = optim::has_auxiliary_rule(config.optimizer);
  const int states = split ? master + state * states_of(config.optimizer, true) : of_rule;
  std::vector<std::pair<std::string, std::string>> lines = {
      {"strategy", plan.strategy},
      {"dtypes", std::string("parameters and gradients ") + name_of(precision.compute) +
                     ", between ranks " + name_of(precision.wire) + ", added up " +
                     name_of(precision.accumulation) + "; master weights " +
                     name_of(precision.master) + ", moments " + name_of(precision.state)},
      {"bytes per parameter on each of N ranks",
       "parameters " + share(model, plan.parameter) + ", gradients " +
           share(gradient, plan.gradient) + ", optimizer " + share(states, plan.optimizer) +
           (split
                ? ", of " + config.optimizer.type + "'s matrices " + share(of_rule, plan.optimizer)
                : "") +
           "; units in use and activations come on top"}};
  if (options.parameters == 0) return lines;
  const int ranks = std::max(options.ranks, 1);
  const double each = bytes_on(model, plan.parameter, ranks) +
                      bytes_on(gradient, plan.gradient, ranks) +
                      bytes_on(states, plan.optimizer, ranks);
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB",
                each * static_cast<double>(options.parameters) / (1 << 30));
  lines.emplace_back(std::to_string(options.parameters) + " parameters on " +
                         std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"),
                     (split ? "at most " : "") + std::string(text) + " on each");
  return lines;
}

void explain_as_json(const ConfigOptions& options, const Loaded& loaded) {
  Explanation explanation{loaded, std::nullopt, {}};
  if (options.ranks > 0) explanation.batch = resolve_batch(loaded.config.batch, options.ranks);
  for (const auto& [name, text] : plan_lines(options, loaded.config)) explanation.plan[name] = text;
  std::fputs(to_json(explanation).c_str(), stdout);
}

void explain(const ConfigOptions& options) {
  const Loaded loaded = options.load();
  if (options.json) return explain_as_json(options, loaded);
  print_imported(loaded);
  print_entries(loaded);
  std::printf("\n");
  print_notices(loaded);
  print_batch(loaded.config, options.ranks);
  std::printf("\n");
  for (const auto& [name, text] : plan_lines(options, loaded.config))
    std::printf("%s: %s\n", name.c_str(), text.c_str());
}

struct NewOptions {
  std::string file;
  int stage = 2;
  bool bf16 = false;
  std::int64_t micro_batch = 4, accumulation = 1, warmup_steps = 100, total_steps = 1000;
  double learning_rate = 3e-4;

  std::string text() const {
    char buffer[2048];
    std::snprintf(buffer, sizeof buffer,
                  R"({
  // Samples per rank and micro step, and micro steps per step.
  "train_micro_batch_size_per_gpu": %lld,
  "gradient_accumulation_steps": %lld,
  // 0: nothing is sharded, 1: optimizer states, 2: and gradients, 3: and parameters.
  "zero_optimization": {"stage": %d},
  "bf16": {"enabled": %s},
  "gradient_clipping": 1.0,
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": %g, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
  },
  "scheduler": {
    "type": "WarmupCosineLR",
    "params": {"warmup_num_steps": %lld, "total_num_steps": %lld, "warmup_type": "linear",
               "cos_min_ratio": 0.1}
  },
  "steps_per_print": 10
}
)",
                  static_cast<long long>(micro_batch), static_cast<long long>(accumulation), stage,
                  bf16 ? "true" : "false", learning_rate, static_cast<long long>(warmup_steps),
                  static_cast<long long>(total_steps));
    return buffer;
  }
};

void write_new(const NewOptions& options) {
  const std::string text = options.text();
  parse_config(text, "new config");  // what is written can be read
  if (options.file.empty()) {
    std::fputs(text.c_str(), stdout);
    return;
  }
  if (std::ifstream(options.file)) throw ConfigError(options.file + " exists already");
  std::ofstream file(options.file);
  if (!(file << text) || !file.flush()) throw ConfigError(options.file + " cannot be written");
}

void add_new(CLI::App& config) {
  auto options = std::make_shared<NewOptions>();
  CLI::App* command = config.add_subcommand("new", "Write a config to start from");
  command->add_option("FILE", options->file, "Where to; default: to the terminal");
  command->add_option("--stage", options->stage, "ZeRO stage")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  command->add_flag("--bf16", options->bf16, "Compute in bfloat16");
  command->add_option("--micro-batch", options->micro_batch, "Samples per rank and micro step")
      ->capture_default_str();
  command->add_option("--accumulation", options->accumulation, "Micro steps per step")
      ->capture_default_str();
  command->add_option("--lr", options->learning_rate, "Learning rate")->capture_default_str();
  command->add_option("--warmup-steps", options->warmup_steps, "Steps of warmup")
      ->capture_default_str();
  command->add_option("--total-steps", options->total_steps, "Steps in all")->capture_default_str();
  command->callback([options] { write_new(*options); });
}

}  // namespace

void add_config(CLI::App& app) {
  CLI::App* config = app.add_subcommand("config", "Check, explain or write a training config");
  config->require_subcommand(1);
  config->footer("docs/config.md lists every key.");

  auto checked = std::make_shared<ConfigOptions>();
  CLI::App* check_command = config->add_subcommand(
      "check", "Say whether a file can be used (exit code 0) or why not (10)");
  add_options(*check_command, *checked);
  check_command->callback([checked] { check(*checked); });

  auto explained = std::make_shared<ConfigOptions>();
  CLI::App* explain_command =
      config->add_subcommand("explain", "Show every value, where it came from and what it does");
  add_options(*explain_command, *explained);
  explain_command->add_option("--params", explained->parameters,
                              "Parameters of the model: shows their bytes");
  explain_command->add_flag("--json", explained->json, "One JSON object, for other programs");
  explain_command->callback([explained] { explain(*explained); });

  add_new(*config);
}

}  // namespace zero::tool
