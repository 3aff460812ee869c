// zero plan: predicts memory, traffic and time of a training run before it starts.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "tools/options/number_options.h"
#include "tools/options/result_file.h"
#include "tools/options/settings.h"
#include "tools/planner/offload_rates.h"
#include "tools/planner/table.h"
#include "tools/report/report.h"
#include "tools/zero/commands.h"
#include "zero/base/error.h"
#include "zero/base/number_text.h"

namespace zero::tool {
namespace {

using namespace planner;

constexpr std::int64_t most_decoder_layers = 4096;
constexpr int most_rank_plans = 256;
constexpr std::size_t most_unit_plans = 1 << 15;  // of units, in half a second

struct PlanOptions {
  std::string config_file, model, params, device = "h100", rows, pipeline_stages, kernels;
  std::vector<std::string> settings;
  int ranks = 8, per_node = 8;
  std::int64_t layers = 0, hidden = 0, vocabulary = 0, micro_batch = 0, sequence = 0;
  std::string device_memory, total_tokens;
  double price = 0, deadline = 0, inside = 0, between = 0;
  bool recompute = false, memory = false, all = false;
  std::string write, json, report;
};

// Reads --params 7B or, as zero config check does, 7Bx32 with the layers.
DecoderSize decoder_size_of(const PlanOptions& options) {
  DecoderSize size{0, options.layers, options.hidden, options.vocabulary};
  const std::size_t cross = options.params.find_first_of("xX");
  size.parameters = parse_count("--params", options.params.substr(0, cross));
  if (size.parameters < 1000)
    throw ConfigError("--params " + options.params +
                      ": too few parameters for a model; give a unit, such as 124M or 7B");
  if (cross == std::string::npos) return size;
  if (size.layers > 0)
    throw ConfigError("--params " + options.params + " has the layers: leave --layers out");
  if (cross + 1 == options.params.size())
    throw ConfigError("--params " + options.params +
                      ": the number of layers is missing behind the x, as in 7Bx32");
  size.layers =
      parse_count("--params " + options.params + ", layers", options.params.substr(cross + 1));
  if (size.layers > most_decoder_layers)
    throw ConfigError("--params " + options.params + ": expected at most 4096 layers");
  return size;
}

ModelShape shape_of(const PlanOptions& options) {
  if (options.model.empty() == options.params.empty())
    throw ConfigError(
        "give the model, as --model NAME, --model PATH (a folder as downloaded, config.json, an "
        "index "
        "or .safetensors), or --params 7B with --layers and --hidden");
  const bool sizes = options.layers + options.hidden + options.vocabulary > 0;
  if (options.params.empty() && sizes)
    throw ConfigError("--layers, --hidden and --vocabulary go with --params; --model has its own");
  if (!options.params.empty()) return decoder_shape(decoder_size_of(options));
  return load_shape(options.model);
}

Cluster cluster_of(const PlanOptions& options) {
  Cluster cluster{load_device(options.device), options.ranks, options.per_node};
  if (!options.device_memory.empty())
    cluster.device.memory_bytes = std::stod(options.device_memory);
  if (options.inside > 0) cluster.device.inside.bytes_per_second = options.inside * gibibyte;
  if (options.between > 0) cluster.device.between.bytes_per_second = options.between * gibibyte;
  if (cluster.ranks > cluster.per_node && cluster.ranks % cluster.per_node != 0)
    throw ConfigError("--ranks " + std::to_string(cluster.ranks) +
                      " is no multiple of --per-node " + std::to_string(cluster.per_node));
  return cluster;
}

Request request_of(const PlanOptions& options) {
  Request request;
  request.config_file = options.config_file;
  request.overrides = parse_settings(options.settings);
  request.shape = shape_of(options);
  request.cluster = cluster_of(options);
  if (options.micro_batch > 0) request.micro_batch = options.micro_batch;
  request.sequence = options.sequence;
  check_sequence(request.shape, request.sequence);
  request.recompute = options.recompute;
  if (!options.kernels.empty()) request.kernels = kernels_named(options.kernels);
  return request;
}

std::optional<Budget> budget_of(const PlanOptions& options) {
  if (options.price == 0 && options.total_tokens.empty() && options.deadline == 0)
    return std::nullopt;
  const double tokens =
      options.total_tokens.empty()
          ? 0
          : static_cast<double>(parse_count("--total-tokens", options.total_tokens));
  if (tokens > 0 && tokens < 1000)
    throw ConfigError("--total-tokens " + options.total_tokens +
                      ": too few tokens for a run; give a unit, such as 100B");
  if (options.price == 0 || tokens == 0)
    throw ConfigError("--price and --total-tokens go together, and --deadline with both");
  return Budget{tokens, options.price, options.deadline};
}

// Tries the outputs before the work.
void check_outputs(const PlanOptions& options) {
  if (!options.json.empty() && options.json != "-")
    check_result_file(options.json, "--json " + options.json);
  if (!options.write.empty()) check_result_file(options.write, "--write " + options.write);
  if (!options.report.empty()) report::prepare_directory(options.report);
}

void plan(const PlanOptions& options) {
  check_outputs(options);
  Request request = request_of(options);
  if (const std::string text = missing_rates_text(request); !text.empty())
    request.shape.notices.push_back(text);
  std::vector<PlanRow> rows =
      options.rows.empty() ? all_rows(request.cluster) : parse_rows(options.rows);
  if (options.rows.empty() && !options.config_file.empty())
    rows.insert(rows.begin(), PlanRow{"config"});
  if (!options.pipeline_stages.empty()) rows = with_stages(rows, options.pipeline_stages);
  if (options.memory) {
    const std::size_t plans = rows.size() * request.shape.work.size();
    request.planned_ranks = most_rank_plans;
    request.planned_alike = std::clamp(static_cast<int>(most_unit_plans / plans),
                                       request.planned_alike, most_rank_plans);
  }
  const PlanResult result = make_plan(request, rows, budget_of(options));
  if (options.json == "-")
    for (const std::string& notice : request.shape.notices)
      std::fprintf(stderr, "zero plan: notice: %s\n", notice.c_str());
  if (options.json != "-") {
    const bool few = options.rows.empty() && !options.all && !options.memory;
    std::printf("%s", text_of(result, few ? Rows::few : Rows::all).c_str());
    if (options.memory) std::printf("\n%s", memory_text(result).c_str());
  }
  if (options.json == "-")
    std::fputs(json_of(result).c_str(), stdout);
  else if (!options.json.empty())
    write_result(options.json, "--json " + options.json, json_of(result));
  if (!options.write.empty())
    write_result(options.write, "--write " + options.write, config_of(result));
  if (options.report.empty()) return;
  report::write_report(page_of(result), options.report);
  std::fprintf(stderr, "%s\n", report::link_line(options.report).c_str());
}

void add_model(CLI::App& command, PlanOptions& options) {
  command.option_defaults()->group("Config and model");
  command
      .add_option("--deepspeed_config,--deepspeed-config", options.config_file,
                  "DeepSpeed or Accelerate file; default: AdamW, bf16 (fp32 on CPUs)")
      ->type_name("FILE");
  command.add_option("--set", options.settings, "One value instead of the file's, as PATH=VALUE")
      ->allow_extra_args(false);
  command
      .add_option(
          "--model", options.model,
          "A model of train_gpt; or a model of the Hugging Face hub: its folder, config.json,\n"
          "index or .safetensors")
      ->type_name("NAME|PATH");
  command.add_option(
      "--params", options.params,
      "Number of parameters of another decoder, such as 7B or, with its layers, 7Bx32");
  add_number(command, "--layers", options.layers, "Layers of the decoder of --params");
  add_number(command, "--hidden", options.hidden, "Channels of the decoder of --params");
  add_number(command, "--vocabulary", options.vocabulary,
             "Vocabulary of the decoder of --params; default: 32000");
  add_number(command, "--micro-batch", options.micro_batch, "Samples per rank and micro step");
  add_number(command, "--sequence-length", options.sequence, "Tokens per sample");
  command.add_flag("--recompute", options.recompute, "Keep only each block's input for backward");
  command.add_option("--kernels", options.kernels,
                     "fused (train_gpt, llm.c), compiled (torch.compile) or eager (PyTorch);\n"
                     "default: eager on GPUs, fused on CPUs");
}

void add_cluster(CLI::App& command, PlanOptions& options) {
  command.option_defaults()->group("Machine");
  add_number(command, "-n,--ranks", options.ranks, "Number of ranks; default: 8");
  add_number(command, "--per-node", options.per_node, "Ranks per node; default: 8");
  command
      .add_option("--device", options.device, device_names() + ", or a JSON file; default: h100")
      ->type_name("NAME|FILE");
  add_number(command, "--device-memory", options.device_memory,
             "Memory of the device, such as 24GiB; default: the device's");
  add_number(command, "--inside-node", options.inside,
             "GiB/s of a GPU's links in its node, or of a CPU node's shared memory");
  add_number(command, "--between-nodes", options.between,
             "GiB/s of the network adapter of a GPU, or of a CPU node");
}

void add_output(CLI::App& command, PlanOptions& options) {
  command.option_defaults()->group("Results");
  command.add_option("--rows", options.rows,
                     "Rows: config, 0, 1, 2, 3, grad_op, hybrid/S, hfsdp/S, 3+hpz/S, 3+qwz,\n"
                     "3+qgz, 3+cpu, 3+nvme, 3+gather=FORMAT, 3+reduce=FORMAT, each also in\n"
                     "P stages of a pipeline, as 3/pP; default: all without stages,\n"
                     "of which the table shows the stages, the fastest and the smallest");
  command
      .add_option("--pipeline-stages", options.pipeline_stages,
                  "Each row with each of these numbers of stages of a pipeline, such as 1,2,4")
      ->type_name("LIST");
  command.add_flag("--all", options.all, "Show all rows in the table");
  command.add_flag("--memory", options.memory,
                   "Also print the bytes of each category, of the rank that needs the most");
  add_number(command, "--price", options.price, "Price of a rank per hour");
  command.add_option("--total-tokens", options.total_tokens, "Tokens of the run, such as 100B");
  add_number(command, "--deadline", options.deadline,
             "Hours in which the run must finish: finds the ranks");
  command.add_option("--write", options.write, "Write the recommended row's config")
      ->type_name("FILE");
  command.add_option("--json", options.json, "Write the rows as JSON; - for standard output")
      ->type_name("FILE|-");
  command.add_option("--report", options.report, "Write report.html, report.md and report.json")
      ->type_name("DIR");
}

}  // namespace

void add_plan(CLI::App& app) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand(
      "plan", "Predict memory, traffic and time of a training run, on any machine");
  add_model(*command, *options);
  add_cluster(*command, *options);
  add_output(*command, *options);
  command->footer("docs/sizing.md explains the table and its figures.");
  command->callback([options] { plan(*options); });
}

}  // namespace zero::tool
