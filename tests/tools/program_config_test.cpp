#include "tools/zero/program_config.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"

namespace zero::tool {
namespace {

// Returns the numbers of ranks up to 6 that the arguments allow.
std::string allowed(const std::vector<std::string>& arguments) {
  const auto refusal = refusal_of_ranks(arguments);
  std::string numbers;
  for (int ranks = 1; ranks <= 6; ++ranks)
    if (refusal(ranks).empty()) numbers += std::to_string(ranks);
  return numbers;
}

TEST_CASE("the batch and the groups of the program's config limit the number of ranks") {
  const tests::TemporaryDirectory directory;
  const std::string file = directory / "config.json";
  std::ofstream(file) << R"({"train_batch_size": 12})";
  CHECK(allowed({"--deepspeed_config", file}) == "12346");
  CHECK(allowed({"--steps", "3", "--deepspeed-config=" + file}) == "12346");
  CHECK(allowed({"--deepspeed", file, "--set", "gradient_accumulation_steps=2"}) == "1236");
  CHECK(allowed({"--deepspeed", file, "--set=train_batch_size=5"}) == "15");
  CHECK(allowed({"--set", "train_batch_size=4"}) == "124");
  CHECK(allowed({"--deepspeed_config", file, "--set", "zero_optimization.stage=3", "--set",
                 "zero_core.shard_group_size=2"}) == "246");
  CHECK(refusal_of_ranks({"--deepspeed", file})(5).find("config.json") != std::string::npos);
}

TEST_CASE("elasticity limits the number of ranks at the first start") {
  const tests::TemporaryDirectory directory;
  const std::string file = directory / "config.json";
  std::ofstream(file) << R"({"elasticity": {"enabled": true, "max_train_batch_size": 12,
                             "micro_batch_sizes": [3], "version": 0.1}})";
  CHECK(allowed({"--deepspeed_config", file}) == "124");
  // Version 0.2 has another batch for three ranks.
  CHECK(allowed({"--deepspeed_config", file, "--set", "elasticity.version=0.2"}) == "1234");
  CHECK(allowed({"--deepspeed_config", file, "--set", "zero_core.rank_independent=true",
                 "--checkpoint", directory / "none"}) == "124");
}

TEST_CASE("a program without a config that can be read may have any number of ranks") {
  const tests::TemporaryDirectory directory;
  const std::string file = directory / "config.json";
  std::ofstream(file) << R"({"train_batch_size": )";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{},
        {"--deepspeed"},
        {"--deepspeed", "--steps"},
        {"--deepspeed_config", file},
        {"--deepspeed_config", directory / "none.json"}})
    CHECK(allowed(arguments) == "123456");
}

}  // namespace
}  // namespace zero::tool
