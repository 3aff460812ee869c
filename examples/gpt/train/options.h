// The command line of train_gpt. Dashes and underscores are equivalent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/report/stage_variants.h"
#include "zero/config.h"

namespace gpt {

struct Options {
  std::string config_file;  // empty: our defaults
  zero::Text overrides;     // of the config, by path: --stage, --set, --seed
  std::string model = "tiny";
  std::vector<std::string> data;
  std::string token_type = "auto";
  std::int64_t steps = 100;
  std::int64_t sequence_length = 0;  // 0: the model's context, at most 2048
  std::string init_file, save_directory, log_file;
  std::int64_t max_shard_bytes = 0;  // per file in save_directory; 0: one file
  std::string checkpoint_directory;  // empty: no checkpoints
  std::string resume = "auto";       // auto, none or a tag
  std::int64_t save_every = 0;       // steps; 0: only after the last
  double save_minutes = 0;           // by rank 0's clock; 0: never
  std::int64_t keep = 0;             // newest checkpoints; 0: all
  bool overwrite_later = false;
  std::vector<zero::report::StageVariant> compared;  // empty: train once
  std::string report_directory;                      // empty: no report
  std::string device = "cpu";                        // cpu, cuda or auto
  int threads = 0;
  double start_limit = 120;
  std::string product_file;              // timed algorithms, for GPUs; empty: cuBLASLt's own choice
  bool separate_products = false;        // on GPUs: joins no product with its neighbors
  bool any_order_attention = false;      // on GPUs: backward may sum in any order
  std::int64_t attention_workspace = 0;  // on GPUs: bytes for several samples at once; 0: as built
  bool recompute = false;                // of activations
  std::int64_t generate = 0;             // tokens, in place of training; 0: train
  std::string prompt;
  double temperature = 0;  // 0: the most likely token
  std::int64_t top_k = 0;  // 0: all

  // Set instead of all others by --help and --version: the text to print.
  std::optional<std::string> answer;

  // Returns whether the run has neither a file nor keys of a config, but the stage and the seed.
  bool is_first_try() const;
};

// Throws ConfigError with the problem and the way to get help.
Options parse_options(int argc, const char* const* argv);

// The config of a run without a file, as JSON: the trainer's own defaults for a model of this
// width, without those that the overrides make meaningless.
std::string default_config(const Options& options, std::int64_t channels);
// Loads the file of --deepspeed_config, or otherwise the trainer's own defaults for a model of this
// width, and applies the overrides.
zero::Config load_training_config(const Options& options, std::int64_t channels);

}  // namespace gpt
