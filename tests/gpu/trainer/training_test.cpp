// The trainer's loop over the engine on a GPU: equal bits at every stage, and the CPU's losses
// within the error of other orders of sums.
#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "examples/gpt/model/model_spec.h"
#include "examples/gpt/train/stage_comparison.h"
#include "examples/gpt/train/training_loop.h"
#include "tests/support/temporary_directory.h"
#include "zero/testing.h"

namespace {

constexpr int steps = 2;

struct Trained {
  std::vector<double> losses, norms;
  std::uint64_t digest = 0;
};

gpt::Options options_of(const std::string& device, const std::string& model, int stage, bool bf16) {
  gpt::Options options;
  options.device = device;
  options.model = model;
  options.steps = steps;
  options.sequence_length = 9;
  options.overrides = {{"zero_optimization.stage", std::to_string(stage)},
                       {"bf16.enabled", bf16 ? "true" : "false"},
                       {"zero_core.gradient_sync", "each"},
                       {"zero_core.deterministic", "true"},
                       {"train_micro_batch_size_per_gpu", "2"},
                       {"gradient_accumulation_steps", "2"}};
  return options;
}

Trained train(zero::Runtime& runtime, const gpt::Options& options) {
  const gpt::Task task = gpt::resolve(options);
  zero::Engine engine(runtime, gpt::spec_of(task), task.config);
  const auto loop = gpt::make_training_loop(runtime, engine, task);
  gpt::set_start_values(engine, task, runtime.pool());
  Trained trained;
  const auto keep = [&](const std::optional<gpt::TrainingRecord>& record) {
    if (!record) return;
    CHECK(record->step == static_cast<std::int64_t>(trained.losses.size()) + 1);
    trained.losses.push_back(record->loss);
    trained.norms.push_back(record->gradient_norm);
  };
  bool stop = false;
  for (std::int64_t index = 0; index < steps; ++index) keep(loop->step(index, stop));
  keep(loop->finish());
  trained.digest = engine.digest();
  return trained;
}

Trained train_on(int ranks, const gpt::Options& options) {
  zero::RuntimeOptions runtime_options;
  runtime_options.pipeline_stages = gpt::pipeline_stages_of(options);
  runtime_options.device = options.device;
  runtime_options.threads = 1;
  Trained root;
  zero::testing::run_ranks(
      ranks,
      [&](zero::Runtime& runtime) {
        Trained own = train(runtime, options);
        if (runtime.is_root()) root = std::move(own);
      },
      runtime_options);
  return root;
}

void check_stages(const std::string& model, int ranks, bool bf16) {
  CAPTURE(model);
  CAPTURE(ranks);
  CAPTURE(bf16);
  const Trained cpu = train_on(ranks, options_of("cpu", model, 0, bf16));
  const Trained first = train_on(ranks, options_of("cuda", model, 0, bf16));
  REQUIRE(first.losses.size() == steps);
  for (std::size_t i = 0; i < steps; ++i) {
    CHECK(first.losses[i] == doctest::Approx(cpu.losses[i]).epsilon(bf16 ? 2e-3 : 2e-6));
    CHECK(first.norms[i] == doctest::Approx(cpu.norms[i]).epsilon(bf16 ? 2e-2 : 1e-4));
  }
  for (const int stage : {1, 2, 3}) {
    CAPTURE(stage);
    const Trained other = train_on(ranks, options_of("cuda", model, stage, bf16));
    CHECK(other.losses == first.losses);
    CHECK(other.norms == first.norms);
    CHECK(other.digest == first.digest);
  }
}

TEST_CASE("gpu: training a GPT-2 has equal bits at every stage and the CPU's losses") {
  check_stages("tiny", 2, false);
}

TEST_CASE("gpu: training a Llama has equal bits at every stage and the CPU's losses") {
  check_stages("llama-tiny", 1, true);
}

TEST_CASE("gpu: stages of a pipeline have the bits of a run without stages") {
  const zero::tests::TemporaryDirectory folder;
  const std::string model = folder / "config.json";
  // No stages share the classifier, as it is not the embedding.
  std::ofstream(model) << R"({"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 24,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 40,
      "vocab_size": 259, "max_position_embeddings": 16})";
  for (const auto& [stages, stage, recompute, schedule] :
       {std::tuple(2, 0, false, "1f1b"), std::tuple(3, 3, false, "gpipe"),
        std::tuple(5, 2, true, "1f1b")}) {
    CAPTURE(stages);
    CAPTURE(stage);
    gpt::Options options = options_of("cuda", model, stage, true);
    options.overrides["gradient_accumulation_steps"] = "4";
    options.recompute = recompute;
    const int data_ranks = stages == 2 ? 2 : 1;
    const Trained whole = train_on(data_ranks, options);
    options.overrides["pipeline.stages"] = std::to_string(stages);
    options.overrides["zero_core.pipeline.schedule"] = schedule;
    const Trained cut = train_on(data_ranks * stages, options);
    CHECK(cut.losses == whole.losses);
    CHECK(cut.norms == whole.norms);
    CHECK(cut.digest == whole.digest);
  }
}

// llama-tiny's weights of queries have 4096 elements, those of keys and of values half of that.
TEST_CASE("gpu: joined products are bitwise identical if one weight is gathered and others stay") {
  const auto trained = [](int stage, bool joined) {
    gpt::Options options = options_of("cuda", "llama-tiny", stage, true);
    options.separate_products = !joined;
    options.overrides["zero_optimization.stage3_param_persistence_threshold"] = "3000";
    return train_on(1, options);
  };
  const Trained first = trained(0, true), copied = trained(3, true), apart = trained(3, false);
  CHECK(copied.losses == first.losses);
  CHECK(copied.norms == first.norms);
  CHECK(copied.digest == first.digest);
  CHECK(apart.digest != first.digest);
  CHECK(apart.losses[1] == doctest::Approx(first.losses[1]).epsilon(2e-3));
}

TEST_CASE("gpu: products whose algorithms are in a file have equal bits at every stage") {
  const zero::tests::TemporaryDirectory folder;
  const auto trained = [&](int stage) {
    gpt::Options options = options_of("cuda", "llama-tiny", stage, true);
    options.product_file = folder / "products";
    return train_on(2, options);
  };
  const Trained first = trained(0);
  CHECK(std::filesystem::file_size(folder / "products") > 1000);
  const Trained second = trained(3);
  CHECK(second.losses == first.losses);
  CHECK(second.digest == first.digest);
}

TEST_CASE("gpu: offload to host memory is a row of the comparison, with the same bits") {
  const zero::tests::TemporaryDirectory folder;
  gpt::Options options = options_of("cuda", "tiny", 0, true);
  options.overrides.erase("zero_optimization.stage");
  options.overrides["zero_core.offload_keep_bytes"] = "0";
  options.compared = zero::report::parse_stage_list("2,2+cpu,3+cpu");
  options.steps = 3;
  options.report_directory = folder / "report";
  zero::RuntimeOptions runtime_options;
  runtime_options.device = "cuda";
  zero::testing::run_ranks(
      2, [&](zero::Runtime& runtime) { CHECK(gpt::compare_stages(runtime, options) == 0); },
      runtime_options);
  std::ifstream in(options.report_directory + "/report.json");
  const auto variants = nlohmann::json::parse(in).at("variants");
  REQUIRE(variants.size() == 3);
  const auto bytes = [&](int variant, const char* tier, const char* category) {
    const auto& use = variants[variant].at(tier).at(category);
    CHECK(use.at("peak") == use.at("planned"));
    return use.at("peak").get<std::int64_t>();
  };
  for (const char* category : {"optimizer_state", "master_weights"}) {
    CHECK(bytes(0, "memory", category) > 0);
    CHECK(bytes(0, "in_host", category) == 0);
    for (const int variant : {1, 2}) {
      CHECK(bytes(variant, "memory", category) == 0);
      CHECK(bytes(variant, "in_host", category) == bytes(0, "memory", category));
      CHECK(bytes(variant, "in_pinned", category) == 0);
    }
  }
  CHECK(bytes(1, "in_host", "parameters") == 0);
  CHECK(bytes(2, "in_pinned", "parameters") > 0);
  CHECK(variants[0].at("copies_per_step").empty());
  for (const int variant : {1, 2})
    for (const char* direction : {"to_host", "to_device"}) {
      CHECK(variants[variant].at("copies_per_step").at(direction).at("bytes") > 0);
      CHECK(variants[variant].at("copies_per_step").at(direction).at("seconds") > 0);
    }
}

}  // namespace
