#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "tests/config/config_support.h"

using namespace zero;
using zero::tests::has;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream input(text);
  for (std::string line; std::getline(input, line);) lines.push_back(line);
  return lines;
}

// Returns the lines as overrides of an empty file.
Text as_overrides(const std::string& description) {
  Text overrides;
  for (const std::string& line : lines_of(description)) {
    const auto equals = line.find(" = ");
    REQUIRE(equals != std::string::npos);
    if (line.substr(equals + 3) != "(not set)")
      overrides[line.substr(0, equals)] = line.substr(equals + 3);
  }
  return overrides;
}

}  // namespace

TEST_CASE("described values are sorted and read back exactly") {
  Config config;
  config.batch.train_batch_size = 48;
  config.zero_optimization.stage = 3;
  config.zero_optimization.max_live_parameters = 0;
  config.zero_core.gradient_sync = GradientSync::each;
  config.zero_core.reduce_group_size = 3;
  config.zero_core.time_limit_seconds = 1.0 / 3;
  config.zero_core.param_groups["norms"].weight_decay = 0.1 + 0.2;
  config.zero_core.param_groups["head"].lr_scale = 5e-324;
  config.seed = 18446744073709551615u;
  config.gradient_clipping = -0.0;
  config.bf16_enabled = true;
  for (const char* optimizer : {"Adam", "AdamW", "SGD"})
    for (const char* scheduler :
         {"", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest"}) {
      config.optimizer.type = optimizer;
      config.optimizer.learning_rate = 1.0000000000000002e-3;
      config.scheduler.type = scheduler;
      config.scheduler.total_num_steps = 100;
      config.scheduler.warmup_max_lr = 2.5e-4;
      const std::string text = describe(config);
      CHECK(describe(load_config("", as_overrides(text))) == text);
      CHECK(std::ranges::is_sorted(lines_of(text)));
    }
}

TEST_CASE("describe() prints settings that apply, and those that are not set") {
  Config config;
  config.optimizer.type = "sgd";
  const std::string text = describe(config);
  CHECK(has(text, "optimizer.params.momentum = 0\n"));
  CHECK_FALSE(has(text, "betas"));
  CHECK_FALSE(has(text, "warmup"));
  CHECK(has(text, "scheduler.type = (not set)\n"));
  CHECK(has(text, "train_batch_size = (not set)\n"));
  CHECK(has(text, "zero_core.reduce_group_size = node\n"));
  CHECK(has(describe(Config{}), "optimizer.params.betas = [0.9, 0.999]\n"));
}

TEST_CASE("configs that differ are described differently") {
  const std::string base = describe(Config{});
  Config config;
  config.zero_core.param_groups["a"];
  CHECK(describe(config) != base);
  config = {};
  config.optimizer.learning_rate = 1e-3 * (1 + 2.3e-16);
  CHECK(describe(config) != base);
}
