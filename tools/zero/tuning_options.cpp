#include "tools/zero/tuning_options.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config_schemas/load.h"
#include "tools/zero/program_config.h"
#include "tools/zero/supervise.h"
#include "zero/base/error.h"
#include "zero/base/text.h"

namespace zero::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* block_name = "autotuning";

// Reads a key of the block; absent or null: nothing.
std::optional<std::int64_t> number_of(const Json& block, const char* key, std::int64_t least) {
  if (!block.contains(key) || block[key].is_null()) return std::nullopt;
  const Json& value = block[key];
  if (!value.is_number_integer() || value.get<std::int64_t>() < least)
    throw ConfigError(std::string(block_name) + "." + key + " is " + value.dump() +
                      ": expected a whole number from " + std::to_string(least) + " on");
  return value.get<std::int64_t>();
}

void read_mappings(const Json& block, TuneOptions& options) {
  if (!block.contains("arg_mappings") || block["arg_mappings"].is_null()) return;
  const Json& mappings = block["arg_mappings"];
  for (const auto& [key, option] : mappings.items()) {
    const std::string path = key.substr(0, key.find_last_not_of(' ') + 1);
    if (!option.is_string())
      throw ConfigError(std::string(block_name) + ".arg_mappings." + path + " is " + option.dump() +
                        ": expected the name of an option of the program");
    if (path == "train_micro_batch_size_per_gpu")
      options.micro_option = option.get<std::string>();
    else if (path == "gradient_accumulation_steps")
      options.accumulation_option = option.get<std::string>();
    else
      write_line("zero tune: " + std::string(block_name) + ".arg_mappings." + path +
                 " has no effect: only train_micro_batch_size_per_gpu and "
                 "gradient_accumulation_steps change");
  }
}

void report_other_keys(const Json& block) {
  constexpr const char* read[] = {"enabled",
                                  "start_profile_step",
                                  "end_profile_step",
                                  "tuner_num_trials",
                                  "min_train_micro_batch_size_per_gpu",
                                  "max_train_micro_batch_size_per_gpu",
                                  "num_tuning_micro_batch_sizes",
                                  "arg_mappings"};
  for (const auto& [key, value] : block.items())
    if (std::ranges::find(read, key) == std::end(read))
      write_line("zero tune: " + std::string(block_name) + "." + key +
                 " has no effect: docs/sizing.md lists the keys that are read");
}

// Keys of DeepSpeed's block, with the same defaults for steps.
void read_block(const Json& document, TuneOptions& options) {
  if (!document.contains(block_name)) return;
  const Json& block = document[block_name];
  if (!block.is_object())
    throw ConfigError(std::string(block_name) + " is " + block.dump() + ": expected an object");
  const std::int64_t start = number_of(block, "start_profile_step", 1).value_or(3);
  const std::int64_t end = number_of(block, "end_profile_step", 1).value_or(start + 2);
  if (end <= start)
    throw ConfigError("autotuning.end_profile_step is " + std::to_string(end) +
                      ": expected more than start_profile_step, " + std::to_string(start));
  options.warm_up = static_cast<int>(start - 1);
  options.steps = static_cast<int>(end - start);
  if (const auto trials = number_of(block, "tuner_num_trials", 1))
    options.trials = static_cast<int>(*trials);
  planner::MicroBatchLimits& limits = options.micro_batches;
  limits.least = number_of(block, "min_train_micro_batch_size_per_gpu", 1).value_or(1);
  limits.most = number_of(block, "max_train_micro_batch_size_per_gpu", 1);
  if (const auto count = number_of(block, "num_tuning_micro_batch_sizes", 1))
    limits.count = static_cast<std::size_t>(*count);
  read_mappings(block, options);
  report_other_keys(block);
}

void check_arguments(const std::vector<std::string>& arguments) {
  for (const auto& [option, why] :
       {std::pair{"--checkpoint", "each trial would resume from the checkpoint of another"},
        std::pair{"--stage", "it would replace the stage of each plan; set it in the config"},
        std::pair{"--compare-stages", "it trains several stages itself"}})
    if (argument_of(arguments, option))
      throw ConfigError(std::string(option) + " among the program's arguments: " + why);
}

// All exact rows, but rows with offload to a file only if the config has a path.
std::vector<planner::PlanRow> default_rows(const planner::Cluster& cluster, const Config& config) {
  std::vector<planner::PlanRow> rows = planner::all_rows(cluster);
  const bool has_file = !config.zero_optimization.offload_optimizer.nvme_path.empty();
  std::erase_if(rows, [&](const planner::PlanRow& row) {
    return !row.exact || (row.name.ends_with("+nvme") && !has_file);
  });
  rows.insert(rows.begin(), planner::PlanRow{"config"});
  return rows;
}

std::string model_of(const TuneArguments& given, const std::vector<std::string>& arguments) {
  if (!given.model.empty()) return given.model;
  const std::string model = argument_of(arguments, "--model").value_or("");
  if (model.empty())
    throw ConfigError(
        "the program's arguments have no --model, which plans need: give --model NAME or --model "
        "PATH (a model's folder, config.json or safetensors) before the program");
  return model;
}

std::int64_t sequence_of(const TuneArguments& given, const std::vector<std::string>& arguments) {
  if (given.sequence > 0) return given.sequence;
  const std::string text = argument_of(arguments, "--sequence-length").value_or("0");
  const bool is_number = !text.empty() && text.size() < 10 &&
                         text.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number)
    throw ConfigError("--sequence-length " + printable(text) +
                      " among the program's arguments: expected a whole number");
  return std::stoll(text);
}

}  // namespace

TuneOptions tune_options(const TuneArguments& given, const std::string& program,
                         const std::vector<std::string>& arguments) {
  if (given.ranks == 0)
    throw ConfigError("-n is missing: the number of ranks; see zero tune --help");
  check_arguments(arguments);
  const ProgramConfig config = read_program_config(arguments);
  if (config.file.empty())
    throw ConfigError(
        "the program's arguments name no config: expected --deepspeed_config FILE or --deepspeed "
        "FILE, which each trial replaces");
  TuneOptions options;
  options.ranks = given.ranks;
  options.program = program;
  options.arguments = arguments;
  options.minutes = given.minutes;
  options.write = given.write;
  options.json = given.json;
  options.launcher = given.launcher;
  planner::Request& request = options.request;
  request.config_text =
      config_schemas::as_json(config_schemas::read_config_file(config.file), config.file);
  request.overrides = config.overrides;
  request.shape = planner::load_shape(model_of(given, arguments));
  request.cluster = {planner::load_device(given.device), given.ranks, given.ranks};
  request.sequence = sequence_of(given, arguments);
  check_sequence(request.shape, request.sequence);
  request.recompute = argument_of(arguments, "--recompute").has_value();
  read_block(Json::parse(request.config_text), options);
  if (given.trials) options.trials = *given.trials;
  if (given.steps) options.steps = *given.steps;
  options.rows =
      given.rows.empty()
          ? default_rows(request.cluster, config_schemas::load_text(
                                              request.config_text, config.file, request.overrides,
                                              {}, config_schemas::Purpose::check)
                                              .config)
          : planner::parse_rows(given.rows);
  options.micro_batches.open = !options.micro_option.empty();
  return options;
}

}  // namespace zero::tool
