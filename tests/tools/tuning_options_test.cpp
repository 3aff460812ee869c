#include "tools/zero/tuning_options.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"
#include "tools/zero/program_config.h"
#include "zero/base/error.h"

namespace zero::tool {
namespace {

using Words = std::vector<std::string>;

class Program {
 public:
  explicit Program(const std::string& config) { std::ofstream(file()) << config; }
  std::string file() const { return directory_ / "ds.json"; }
  TuneOptions options(Words more = {}, TuneArguments given = {.ranks = 2}) const {
    Words arguments = {"--deepspeed_config", file(), "--model", "tiny"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return tune_options(given, "train_gpt", arguments);
  }

 private:
  tests::TemporaryDirectory directory_;
};

TEST_CASE("model, tokens and recomputation of a search are those of the program") {
  const Program program(R"({"train_batch_size": 8})");
  const TuneOptions options = program.options(
      {"--sequence-length=32", "--recompute", "--set", "zero_optimization.stage=1"});
  CHECK(options.request.shape.name == "tiny");
  CHECK(options.request.sequence == 32);
  CHECK(options.request.recompute);
  CHECK(options.request.overrides.at("zero_optimization.stage") == "1");
  CHECK(options.rows.front().name == "config");
  for (const planner::PlanRow& row : options.rows) {
    CHECK(row.exact);
    CHECK_FALSE(row.name.ends_with("+nvme"));
  }
}

TEST_CASE("the search reads DeepSpeed's autotuning block") {
  const Program program(R"({"train_batch_size": 8, "autotuning": {"enabled": true,
    "start_profile_step": 4, "end_profile_step": 10, "tuner_num_trials": 7,
    "min_train_micro_batch_size_per_gpu": 2, "max_train_micro_batch_size_per_gpu": 16,
    "num_tuning_micro_batch_sizes": 3, "fast": false, "arg_mappings": {
    "train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
    "gradient_accumulation_steps ": "--gradient_accumulation_steps"}}})");
  const TuneOptions options = program.options();
  CHECK(options.warm_up == 3);
  CHECK(options.steps == 6);
  CHECK(options.trials == 7);
  CHECK(options.micro_batches.least == 2);
  CHECK(options.micro_batches.most == 16);
  CHECK(options.micro_batches.count == 3);
  CHECK(options.micro_batches.open);
  CHECK(options.micro_option == "--per_device_train_batch_size");
  CHECK(options.accumulation_option == "--gradient_accumulation_steps");
  CHECK(program.options({}, {.ranks = 2, .trials = 3, .steps = 2}).trials == 3);
}

TEST_CASE("errors of a search name the option or the key") {
  const Program program(R"({"train_batch_size": 8})");
  for (const char* option : {"--checkpoint", "--stage", "--compare-stages"})
    CHECK_THROWS_WITH_AS(program.options({option, "x"}), doctest::Contains(option), ConfigError);
  CHECK_THROWS_WITH_AS(program.options({}, {}), doctest::Contains("-n is missing"), ConfigError);
  CHECK_THROWS_WITH_AS(program.options({"--sequence-length", "many"}),
                       doctest::Contains("--sequence-length many"), ConfigError);
  CHECK_THROWS_WITH_AS(tune_options({.ranks = 2}, "train", {"--model", "tiny"}),
                       doctest::Contains("name no config"), ConfigError);
  CHECK_THROWS_WITH_AS(tune_options({.ranks = 2}, "train", {"--deepspeed", program.file()}),
                       doctest::Contains("no --model"), ConfigError);
  for (const auto& [block, text] :
       {std::pair{R"({"tuner_num_trials": 0})", "autotuning.tuner_num_trials is 0"},
        std::pair{R"({"start_profile_step": 5, "end_profile_step": 5})", "end_profile_step is 5"},
        std::pair{R"({"arg_mappings": {"x": 3}})", "autotuning.arg_mappings.x is 3"}})
    CHECK_THROWS_WITH_AS(Program(R"({"autotuning": )" + std::string(block) + "}").options(),
                         doctest::Contains(text), ConfigError);
}

TEST_CASE("a trial's arguments have its config and its micro-batch") {
  CHECK(with_config_file({"--a", "--deepspeed", "x.json", "--set", "a=1", "--b"}, "y.json") ==
        Words{"--a", "--deepspeed", "y.json", "--b"});
  CHECK(with_config_file({"--deepspeed_config=x.json", "--set=a=1", "c"}, "y.json") ==
        Words{"--deepspeed_config=y.json", "c"});
  CHECK(with_config_file({"--deepspeed", "--deepspeed_config", "x"}, "y") ==
        Words{"--deepspeed", "--deepspeed_config", "y"});
  CHECK(with_argument({"--m", "1", "c"}, "--m", "2") == Words{"--m", "2", "c"});
  CHECK(with_argument({"--m=1"}, "--m", "2") == Words{"--m=2"});
  CHECK(with_argument({"c"}, "--m", "2") == Words{"c", "--m", "2"});
}

}  // namespace
}  // namespace zero::tool
