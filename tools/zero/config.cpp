// zero config: checks and explains the file of a training run, and writes new files.
#include "tools/zero/config.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "tools/options/number_options.h"
#include "tools/options/settings.h"
#include "tools/zero/commands.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"
#include "zero/config.h"
#include "zero/plan/elasticity.h"

namespace zero::tool {
namespace {

using namespace config_schemas;

void check(const ConfigOptions& options) {
  const Loaded loaded = options.load();
  print_imported(loaded);
  const std::vector<std::string> notices = check_plan(loaded, options.file, options.planned_run());
  print_notices(loaded);
  for (const std::string& notice : notices) std::printf("notice: %s\n", notice.c_str());
  print_batch(loaded.config, options.ranks);
  std::printf("%s: good\n", options.file.c_str());
}

void add_check(CLI::App& config) {
  auto options = std::make_shared<ConfigOptions>();
  CLI::App* command =
      config.add_subcommand("check", "Say whether a file can be used (exit code 0) or why not (" +
                                         std::to_string(ConfigError::code) + ")");
  command
      ->add_option("FILE", options->file,
                   "DeepSpeed JSON, Accelerate YAML or JSON, or a Trainer's arguments")
      ->required();
  add_file_options(*command, *options);
  command->option_defaults()->group(run_group);
  command
      ->add_option("--device", options->device,
                   "The run's device: settings that only the other one supports are refused")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->footer(
      "The engine's own plan decides what a run would refuse. Options that are omitted stay open: "
      "a file\n"
      "is refused only if every run would refuse it. zero plan checks it for one model.");
  command->callback([options] { check(*options); });
}

// The numbers of ranks that DeepSpeed, too, would accept.
void print_fitting_ranks(const ElasticityOptions& elasticity, int ranks) {
  if (!elasticity.enabled) return;
  const detail::ElasticBatch batch = detail::choose_elastic_batch(elasticity, ranks);
  std::string text;
  for (const std::int64_t fitting : batch.ranks)
    text += (text.empty() ? "" : ", ") + std::to_string(fitting);
  std::printf("elasticity: %lld samples fit %s ranks\n", static_cast<long long>(batch.total),
              text.c_str());
}

}  // namespace

Loaded ConfigOptions::load() const {
  return load_file(file, parse_settings(settings), values, Purpose::check);
}

PlannedRun ConfigOptions::planned_run() const {
  PlannedRun run;
  if (ranks > 0) run.ranks = ranks;
  run.per_node = per_node;
  if (!device.empty()) run.on_gpu = device == "cuda";
  if (!model.empty()) run.model = parse_model_size(model);
  run.total_steps = values.total_steps;
  return run;
}

void add_file_options(CLI::App& command, ConfigOptions& options) {
  command.option_defaults()->group(run_group);
  add_number(command, "--world-size", options.ranks, "Number of ranks");
  command
      .add_option("--model,--params", options.model,
                  "Parameters of the model, and its layers: 124M, 7e9, 7Bx32")
      ->type_name("COUNT");
  command.option_defaults()->group("Values of the file");
  command.add_option("--set", options.settings, "One value instead of the file's, as PATH=VALUE")
      ->allow_extra_args(false);
  add_number(command, "--hidden-size", options.values.hidden_size,
             "Hidden size of the model, if the file has \"auto\"");
  add_number(command, "--total-steps", options.values.total_steps,
             "Optimizer steps, if the file has \"auto\"");
  add_number(command, "--micro-batch", options.values.micro_batch_size,
             "Samples per rank and micro step, if the file has \"auto\"");
}

void print_pairs(const char* title, const Pairs& rows) {
  if (rows.empty()) return;
  std::size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.first.size());
  std::printf("%s\n", title);
  for (const auto& [left, right] : rows)
    std::printf("  %-*s  %s\n", static_cast<int>(width), left.c_str(), right.c_str());
}

void print_imported(const Loaded& loaded) {
  Pairs rows;
  for (const ImportedKey& key : loaded.imported) rows.emplace_back(key.key, key.effect);
  print_pairs("imported:", rows);
}

void print_notices(const Loaded& loaded) {
  // Notices about imported keys are in the table already.
  for (std::size_t i = loaded.imported.size(); i < loaded.config.notices.size(); ++i)
    std::printf("notice: %s\n", loaded.config.notices[i].c_str());
}

void print_batch(const Config& config, int ranks) {
  if (ranks == 0) return;
  print_fitting_ranks(config.batch.elasticity, ranks);
  const Batch batch = resolve_batch(config.batch, ranks, config.zero_core.rank_independent);
  if (batch.micro_batches != batch.accumulation * ranks) {
    std::printf(
        "batch on %d ranks: %lld samples per step = micro batch %lld x %lld, in %lld micro steps; "
        "the last one has %lld for the first ranks\n",
        ranks, static_cast<long long>(batch.global), static_cast<long long>(batch.micro),
        static_cast<long long>(batch.micro_batches), static_cast<long long>(batch.accumulation),
        static_cast<long long>(batch.micro_batches % ranks));
    return;
  }
  std::printf(
      "batch on %d rank%s: %lld samples per step = micro batch %lld x accumulation %lld x %d\n",
      ranks, ranks == 1 ? "" : "s", static_cast<long long>(batch.global),
      static_cast<long long>(batch.micro), static_cast<long long>(batch.accumulation), ranks);
}

void add_config(CLI::App& app) {
  CLI::App* config = app.add_subcommand("config", "Check, explain or write a training config");
  config->require_subcommand(1);
  config->footer("docs/config.md lists every key.");
  add_check(*config);
  add_config_explain(*config);
  add_config_new(*config);
}

}  // namespace zero::tool
