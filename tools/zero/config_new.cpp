// zero config new: writes a file to start from. Plain JSON, since every reader accepts that; the
// meaning of the keys is printed separately.
#include <cstdio>
#include <filesystem>
#include <memory>

#include "tools/options/number_options.h"
#include "tools/options/result_file.h"
#include "tools/zero/config.h"
#include "tools/zero/explanation.h"
#include "zero/base/error.h"

namespace zero::tool {
namespace {

using namespace config_schemas;

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
  "train_micro_batch_size_per_gpu": %lld,
  "gradient_accumulation_steps": %lld,
  "zero_optimization": {"stage": %d},
  "bf16": {"enabled": %s},
  "gradient_clipping": 1.0,
  "optimizer": {
    "type": "AdamW",
    "params": {"lr": %.15g, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
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

// Prints the meanings of the file's keys, from the key table. Kept out of the file, so that a pipe
// gets only JSON.
void print_meanings(const Loaded& loaded) {
  std::size_t width = 0;
  for (const Entry& entry : loaded.entries)
    if (entry.source == Source::file) width = std::max(width, entry.path.size());
  for (const Entry& entry : loaded.entries)
    if (entry.source == Source::file)
      std::fprintf(stderr, "%-*s  %s\n", static_cast<int>(width), entry.path.c_str(),
                   effect_of(entry).c_str());
}

void write_new(const NewOptions& options) {
  if (options.warmup_steps >= options.total_steps)
    throw ConfigError("--warmup-steps " + std::to_string(options.warmup_steps) +
                      ": expected fewer than --total-steps " + std::to_string(options.total_steps));
  const std::string text = options.text();
  const Loaded loaded = load_text(text, "new config", {}, {});  // checks that the text is readable
  if (options.file.empty()) {
    std::fputs(text.c_str(), stdout);
  } else {
    for (const char* value : {"true", "false", "yes", "no", "1", "0"})
      if (options.file == value)
        throw ConfigError("unexpected " + options.file +
                          ", since --bf16 takes no value; to name the file so, write ./" +
                          options.file);
    std::error_code ignored;
    if (std::filesystem::is_regular_file(options.file, ignored))
      throw ConfigError(options.file + " exists already");
    write_result(options.file, options.file, text);
  }
  print_meanings(loaded);
}

}  // namespace

void add_config_new(CLI::App& config) {
  auto options = std::make_shared<NewOptions>();
  CLI::App* command = config.add_subcommand("new", "Write a config to start from");
  command->add_option("FILE", options->file, "The file to write; default: the terminal");
  add_number(*command, "--stage", options->stage, "ZeRO stage")->capture_default_str();
  command->add_flag("--bf16", options->bf16, "Compute in bfloat16");
  add_number(*command, "--micro-batch", options->micro_batch, "Samples per rank and micro step")
      ->capture_default_str();
  add_number(*command, "--accumulation", options->accumulation, "Micro steps per step")
      ->capture_default_str();
  add_number(*command, "--lr", options->learning_rate, "Learning rate")->capture_default_str();
  add_number(*command, "--warmup-steps", options->warmup_steps, "Steps of warmup")
      ->capture_default_str();
  add_number(*command, "--total-steps", options->total_steps, "Steps in all")
      ->capture_default_str();
  command->callback([options] { write_new(*options); });
}

}  // namespace zero::tool
