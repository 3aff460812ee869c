#include "examples/gpt/train/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "examples/gpt/model/model_config.h"
#include "tools/options/command_line.h"
#include "tools/options/help_formatter.h"
#include "tools/options/number_options.h"
#include "tools/options/settings.h"
#include "zero/zero.h"

namespace gpt {
namespace {

// Returns the arguments with one spelling of long option names; values are not changed.
std::vector<std::string> normalized(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments)
    if (argument.starts_with("--"))
      std::replace(argument.begin(), std::find(argument.begin(), argument.end(), '='), '_', '-');
  return arguments;
}

struct Parsed {
  Options options;
  std::vector<std::string> settings;
  std::string deepspeed;
  std::string compared;
  std::string trace;
  std::optional<int> stage;
  std::optional<std::uint64_t> seed;
};

void declare_config(CLI::App& app, Parsed& p) {
  Options& o = p.options;
  app.add_option("--deepspeed_config,--deepspeed-config", o.config_file,
                 "DeepSpeed JSON file; without it, the defaults")
      ->type_name("FILE");
  app.add_option("--deepspeed", p.deepspeed, "The same; alone, without a file, it changes nothing")
      ->type_name("FILE")
      ->expected(0, 1);
  zero::add_number(app, "--stage", p.stage, "ZeRO stage: --set zero_optimization.stage=N");
  app.add_option("--set", p.settings, "Any key of the config; may be repeated")
      ->type_name("PATH=VALUE")
      ->expected(1)
      ->take_all();
  zero::add_number(app, "--seed", p.seed, "Of start values and data: --set seed=N");
}

void declare_model(CLI::App& app, Options& o) {
  app.add_option("--model", o.model,
                 preset_names() + ", or a config.json of GPT-2, Llama, Qwen2 or OLMo 2")
      ->type_name("NAME|FILE")
      ->capture_default_str();
  app.add_option("--data", o.data,
                 "Text or token file; may be repeated. Without it, built-in text of known entropy")
      ->type_name("PATH")
      ->expected(1)
      ->take_all();
  app.add_option("--token-dtype", o.token_type, "Type of the tokens of --data; auto: by the file")
      ->type_name("auto|text|uint16|uint32")
      ->capture_default_str();
  zero::add_number(app, "--steps", o.steps, "Optimizer steps")->capture_default_str();
  zero::add_number(app, "--sequence-length", o.sequence_length,
                   "Tokens of a sample; default: the model's context, at most 2048");
  app.add_option("--init", o.init_file,
                 "Start from this Hugging Face model: a safetensors file, an index of some, or "
                 "their directory")
      ->type_name("PATH");
  app.add_option("--save-model", o.save_directory, "Write the result as a Hugging Face model")
      ->type_name("DIR");
  zero::add_number(app, "--max-shard-size", o.max_shard_bytes,
                   "Of --save-model: several files of at most this size, such as 5GB");
}

void declare_checkpoints(CLI::App& app, Options& o) {
  app.add_option("--checkpoint", o.checkpoint_directory,
                 "Directory of checkpoints: resumed from at start, saved to after the last step")
      ->type_name("DIR");
  app.add_option("--resume", o.resume,
                 "auto (the newest checkpoint, if there is one), a tag, or none")
      ->type_name("TAG")
      ->capture_default_str();
  zero::add_number(app, "--save-every", o.save_every, "Save every N steps too");
  zero::add_number(app, "--save-minutes", o.save_minutes,
                   "Save when the last one is N minutes old, too");
  zero::add_number(app, "--keep", o.keep,
                   "Remove all but the newest N checkpoints; default: keep all");
  app.add_flag("--overwrite-later", o.overwrite_later,
               "With --resume none or a tag: move later checkpoints aside, to .trash-*");
}

void declare_results(CLI::App& app, Parsed& p) {
  Options& o = p.options;
  app.add_option("--log-json", o.log_file, "Write one JSON object per step, and a summary")
      ->type_name("FILE");
  app.add_option("--trace", p.trace,
                 "Write the newest steps of all ranks for Perfetto: --set zero_core.trace=FILE")
      ->type_name("FILE");
  app.add_option("--compare-stages", p.compared,
                 "Train the same steps at each of these stages and compare: 0,1,2,3,grad_op,\n"
                 "3+nvme (the last with offload to a file; 3+cpu on GPUs: to host memory),\n"
                 "3/p2 (in two stages of a pipeline)")
      ->type_name("LIST");
  app.add_option("--report", o.report_directory,
                 "With --compare-stages: write report.html, report.md and report.json")
      ->type_name("DIR");
}

void declare_machine(CLI::App& app, Options& o) {
  app.add_option("--device", o.device,
                 "cpu; cuda: a GPU per rank; auto: cuda where there is a GPU, else cpu")
      ->type_name("cpu|cuda|auto")
      ->capture_default_str();
  app.add_option("--product-file", o.product_file,
                 "On GPUs: time algorithms of matrix products once, and keep the fastest here")
      ->type_name("FILE");
  app.add_flag("--separate-products", o.separate_products,
               "On GPUs: do not join the products of queries, keys and values, nor of gate and up");
  app.add_flag(
      "--any-order-attention", o.any_order_attention,
      "On GPUs: a quicker backward pass of cuDNN's attention, whose bits differ from run to run");
  zero::add_number(app, "--attention-workspace", o.attention_workspace,
                   "On GPUs: memory of cuDNN's attention for some samples at once; default: 1GiB");
  zero::add_number(app, "--start-limit", o.start_limit,
                   "Seconds until all ranks have come up; ZERO_START_LIMIT wins");
  zero::add_number(app, "--threads", o.threads,
                   "Compute threads of a rank; default: the node's cores, shared");
  app.add_flag(
      "--recompute", o.recompute,
      "Keep only each block's input for backward: less memory, up to a third more arithmetic");
}

void declare_generation(CLI::App& app, Options& o) {
  zero::add_number(app, "--generate", o.generate,
                   "Do not train: continue --prompt by N tokens, with the model of --init");
  app.add_option("--prompt", o.prompt, "Text, or numbers of tokens if the model has more than 256")
      ->type_name("STRING");
  zero::add_number(app, "--temperature", o.temperature,
                   "Of --generate: divides logits before a token is drawn; 0: the most likely");
  zero::add_number(app, "--top-k", o.top_k,
                   "Of --generate: draw from the K most likely tokens; 0: from all");
}

void declare(CLI::App& app, Parsed& parsed) {
  const auto in_group = [&app](const char* name) { app.option_defaults()->group(name); };
  in_group("Config");
  declare_config(app, parsed);
  in_group("Model and data");
  declare_model(app, parsed.options);
  in_group("Checkpoints");
  declare_checkpoints(app, parsed.options);
  in_group("Results");
  declare_results(app, parsed);
  in_group("Generation");
  declare_generation(app, parsed.options);
  in_group("Machine");
  declare_machine(app, parsed.options);
  zero::refuse_missing_values(app);
}

void check(const Options& options) {
  if (options.device != "cpu" && options.device != "cuda" && options.device != "auto")
    throw zero::ConfigError("--device " + options.device + ": expected cpu, cuda or auto");
  if (!options.product_file.empty() && options.device == "cpu")
    throw zero::ConfigError(
        "--product-file keeps the algorithms of products on GPUs: add --device cuda, or leave it "
        "out");
  if (options.separate_products && options.device == "cpu")
    throw zero::ConfigError(
        "--separate-products is for GPUs, and products on CPUs always are: leave it out");
  if ((options.any_order_attention || options.attention_workspace != 0) && options.device == "cpu")
    throw zero::ConfigError(
        "--any-order-attention and --attention-workspace are for attention on GPUs: add --device "
        "cuda, or leave them out");
  const bool asks = options.resume != "auto" || options.save_every > 0 ||
                    options.save_minutes > 0 || options.keep > 0 || options.overwrite_later;
  if (asks && options.checkpoint_directory.empty())
    throw zero::ConfigError(
        "--resume, --save-every, --save-minutes, --keep and --overwrite-later need "
        "--checkpoint DIR");
  if (options.max_shard_bytes > 0 && options.save_directory.empty())
    throw zero::ConfigError("--max-shard-size needs --save-model DIR");
}

void check_generation(const Options& options) {
  if (options.generate == 0) {
    if (!options.prompt.empty() || options.temperature != 0 || options.top_k != 0)
      throw zero::ConfigError("--prompt, --temperature and --top-k need --generate N");
    return;
  }
  if (options.init_file.empty())
    throw zero::ConfigError(
        "--generate needs --init, a model that has been trained, such as the directory of "
        "--save-model");
  if (options.device != "cpu")
    throw zero::ConfigError("--generate runs on CPUs: leave --device out");
  if (!options.checkpoint_directory.empty() || !options.save_directory.empty() ||
      !options.compared.empty() || !options.log_file.empty())
    throw zero::ConfigError(
        "--generate does not train: leave --checkpoint, --save-model, --compare-stages and "
        "--log-json out");
}

// A comparison chooses the stage itself, and always starts from step 0.
void check_comparison(const Options& options) {
  if (options.compared.empty()) {
    if (!options.report_directory.empty())
      throw zero::ConfigError("--report needs --compare-stages, such as --compare-stages 0,1,2,3");
    return;
  }
  const auto refuse = [](const std::string& other, const std::string& reason) {
    throw zero::ConfigError("--compare-stages does not go with " + other + ": " + reason);
  };
  if (zero::gives(options.overrides, "zero_optimization.stage"))
    refuse("--stage or --set zero_optimization.stage", "it sets the stage itself");
  if (zero::gives(options.overrides, "zero_core.reshard_after_forward"))
    refuse("--set zero_core.reshard_after_forward", "put grad_op into the list");
  if (!options.checkpoint_directory.empty())
    refuse("--checkpoint", "every stage starts from step 0");
  if (zero::gives(options.overrides, "zero_core.trace"))
    refuse("--trace", "train at the stage whose trace you want");
  if (!options.save_directory.empty())
    refuse("--save-model", "there is no one result; train once, without --compare-stages");
  if (options.steps < 1) refuse("--steps 0", "there would be nothing to compare");
}

}  // namespace

bool Options::is_first_try() const {
  const auto has = [&](const char* path) { return std::int64_t{zero::gives(overrides, path)}; };
  return config_file.empty() &&
         std::ssize(overrides) == has("zero_optimization.stage") + has("seed");
}

Options parse_options(int argc, const char* const* argv) {
  CLI::App app(
      "Trains a GPT-2, Llama, Qwen2 or OLMo 2 at any ZeRO stage, on the ranks that zero run or "
      "mpirun starts.",
      "train_gpt");
  Parsed parsed;
  app.formatter(std::make_shared<zero::HelpFormatter>());
  app.footer(
      "Examples:\n"
      "  zero run -n 4 train_gpt --deepspeed_config ds_config.json --model gpt2 --data text.txt\n"
      "  mpirun -n 2 train_gpt --stage 3 --steps 200 --checkpoint saves");
  declare(app, parsed);
  app.set_version_flag("--version", "train_gpt " ZERO_VERSION);
  try {
    std::vector<std::string> arguments = normalized(argc, argv);
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    parsed.options.answer = app.help();
    return parsed.options;
  } catch (const CLI::CallForVersion& version) {
    parsed.options.answer = std::string(version.what()) + "\n";
    return parsed.options;
  } catch (const CLI::ExtrasError&) {
    throw zero::ConfigError(zero::unexpected_text(app, app.remaining(), normalized(argc, argv)));
  } catch (const CLI::ParseError& error) {
    throw zero::ConfigError(zero::wrong_use_text(app, error));
  }
  Options& options = parsed.options;
  if (!parsed.deepspeed.empty()) {
    if (!options.config_file.empty() && options.config_file != parsed.deepspeed)
      throw zero::ConfigError("--deepspeed and --deepspeed_config name different files");
    options.config_file = parsed.deepspeed;
  }
  options.overrides = zero::parse_settings(parsed.settings);
  if (parsed.stage) options.overrides["zero_optimization.stage"] = std::to_string(*parsed.stage);
  if (!parsed.trace.empty()) options.overrides["zero_core.trace"] = parsed.trace;
  if (parsed.seed) options.overrides["seed"] = std::to_string(*parsed.seed);
  if (!parsed.compared.empty()) options.compared = zero::report::parse_stage_list(parsed.compared);
  check(options);
  check_comparison(options);
  check_generation(options);
  return options;
}

constexpr std::int64_t default_micro_batch = 4;

std::string default_config(const Options& options, std::int64_t channels) {
  // The rate falls with the width, since wider models need smaller steps: 0.003 for tiny, 0.00026
  // for gpt2. The stage stays DeepSpeed's own default of 0, so that --stage shows the memory saved
  // by each stage.
  const double rate = std::min(0.003, 0.2 / static_cast<double>(channels));
  const auto gives = [&](const char* path) { return zero::gives(options.overrides, path); };
  // Another optimizer or schedule has its own parameters and defaults.
  const std::string betas = gives("optimizer.type") ? "" : R"("betas": [0.9, 0.95], )";
  const std::string schedule =
      gives("scheduler.type") ? "" : R"("warmup_num_steps": 20, "warmup_type": "linear")";
  const bool batch =
      gives("train_batch_size") || gives("train_micro_batch_size_per_gpu") || gives("elasticity");
  const std::string micro =
      batch ? ""
            : R"("train_micro_batch_size_per_gpu": )" + std::to_string(default_micro_batch) + ", ";
  return R"({"gradient_clipping": 1.0, )" + micro +
         R"("optimizer": {"type": "AdamW", "params": {)" + betas +
         R"("weight_decay": 0.1, "lr": )" + std::to_string(rate) +
         R"(}}, "scheduler": {"type": "WarmupLR", "params": {)" + schedule + "}}}";
}

zero::Config load_training_config(const Options& options, std::int64_t channels) {
  if (options.config_file.empty()) {
    zero::Config config =
        zero::parse_config(default_config(options, channels), "", options.overrides);
    if (!config.batch.given()) config.batch.train_micro_batch_size_per_gpu = default_micro_batch;
    return config;
  }
  // Values of "auto" that this trainer knows.
  zero::TrainerValues values;
  values.hidden_size = channels;
  values.total_steps = options.steps;
  return zero::load_config(options.config_file, options.overrides, values);
}

}  // namespace gpt
