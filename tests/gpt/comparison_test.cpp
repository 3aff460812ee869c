// --compare-stages: its list, its command line, the figures from reports, and the distinction of
// variants by their real bits.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "examples/gpt/model/model_spec.h"
#include "examples/gpt/train/sharding_remarks.h"
#include "examples/gpt/train/stage_comparison.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "tools/report/number.h"
#include "tools/report/runs.h"
#include "tools/report/table.h"
#include "zero/testing.h"

namespace {

using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

gpt::Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "train_gpt");
  return gpt::parse_options(static_cast<int>(arguments.size()), arguments.data());
}

std::string error(std::vector<const char*> arguments) {
  return refusal<zero::ConfigError>([&] { parse(arguments); });
}

TEST_CASE("the list names strategies, each once, in the user's order") {
  const std::vector<zero::report::StageVariant> list =
      zero::report::parse_stage_list("3,grad_op,0");
  REQUIRE(list.size() == 3);
  CHECK(list[0].name == "stage 3");
  CHECK(list[0].overrides ==
        zero::Text{{"zero_optimization.stage", "3"}, {"zero_core.reshard_after_forward", "true"}});
  CHECK(list[1].name == "grad_op");
  CHECK(list[1].overrides ==
        zero::Text{{"zero_optimization.stage", "3"}, {"zero_core.reshard_after_forward", "false"}});
  CHECK(list[2].name == "stage 0");
  const std::vector<zero::report::StageVariant> offloaded =
      zero::report::parse_stage_list("2,3+nvme");
  CHECK(offloaded[0].overrides.at("zero_optimization.offload_optimizer.device") == "none");
  CHECK(offloaded[1].name == "stage 3 + nvme");
  CHECK(offloaded[1].overrides.at("zero_optimization.stage") == "3");
  CHECK(offloaded[1].overrides.at("zero_optimization.offload_optimizer.device") == "nvme");
  CHECK(offloaded[1].overrides.at("zero_optimization.offload_param.device") == "nvme");
  CHECK(offloaded[1].overrides.at("zero_optimization.offload_param.max_in_cpu") == "0");
  const std::vector<zero::report::StageVariant> in_stages =
      zero::report::parse_stage_list("2,hybrid/2/p4");
  CHECK(in_stages[0].overrides.at("pipeline.stages") == "1");
  CHECK(in_stages[1].name == "hybrid/2/p4");
  CHECK(in_stages[1].overrides.at("pipeline.stages") == "4");
  const std::vector<zero::report::StageVariant> on_host = zero::report::parse_stage_list("2,3+cpu");
  CHECK(on_host[0].overrides.at("zero_optimization.offload_optimizer.device") == "none");
  CHECK(!on_host[0].of_gpu);
  CHECK(on_host[1].name == "stage 3 + cpu");
  CHECK(on_host[1].overrides.at("zero_optimization.offload_optimizer.device") == "cpu");
  CHECK(on_host[1].overrides.at("zero_optimization.offload_param.device") == "cpu");
  CHECK(on_host[1].of_gpu);
  const std::vector<zero::report::StageVariant> groups =
      zero::report::parse_stage_list("3,hybrid/2,hfsdp/2,3+hpz/4");
  CHECK(groups[1].name == "hybrid/2");
  CHECK(groups[1].overrides.at("zero_core.shard_group_size") == "2");
  CHECK(groups[1].overrides.at("zero_core.optimizer_over_all_ranks") == "false");
  CHECK(groups[2].overrides.at("zero_core.optimizer_over_all_ranks") == "true");
  CHECK(groups[3].name == "stage 3 + hpz/4");
  CHECK(groups[3].overrides.at("zero_optimization.zero_hpz_partition_size") == "4");
  for (const zero::report::StageVariant& variant : groups)
    CHECK(variant.overrides.at("zero_core.reduce_group_size") == "2");
  const std::vector<zero::report::StageVariant> encoded =
      zero::report::parse_stage_list("3,3+qwz,3+qgz,3+qwz+qgz");
  const std::string weights = "zero_optimization.zero_quantized_weights";
  const std::string gradients = "zero_optimization.zero_quantized_gradients";
  for (const std::size_t i : {0, 1, 2, 3}) {
    CHECK(encoded[i].overrides.at(weights) == (i % 2 == 1 ? "true" : "false"));
    CHECK(encoded[i].overrides.at(gradients) == (i >= 2 ? "true" : "false"));
    CHECK(encoded[i].encoded == (i > 0));
  }
  CHECK(encoded[3].name == "stage 3 + qwz + qgz");
  for (const auto& [text, problem] : {std::pair{"0,4", "\"4\" is no stage"},
                                      {"0,hybrid", "hybrid lacks the ranks of a group"},
                                      {"0,hfsdp/0", "hfsdp/0 lacks the ranks of a group"},
                                      {"0,3/2", "3 has no groups"},
                                      {"0,3/x", "\"3/x\" is no stage"},
                                      {"0,3/p0", "\"3/p0\" is no stage"},
                                      {"3/p2,3/p2", "3/p2 is there twice"},
                                      {"hybrid/2,hfsdp/4", "groups of 2 and of 4 ranks"},
                                      {"0,", "nothing to compare"},
                                      {",0,1", "\"\" is no stage"},
                                      {"0, 1", "\" 1\" is no stage"},
                                      {"0,1,0", "0 is there twice"},
                                      {"2", "nothing to compare"},
                                      {"all", "\"all\" is no stage"}}) {
    const std::string message =
        refusal<zero::ConfigError>([&, text = text] { zero::report::parse_stage_list(text); });
    CHECK_MESSAGE(contains(message, problem), message);
    CHECK(contains(message, text));
  }
}

TEST_CASE("options that a comparison contradicts are refused with both names") {
  const gpt::Options good = parse({"--compare_stages", "0,3", "--report", "out", "--set",
                                   "gradient_accumulation_steps=2", "--log-json", "log"});
  CHECK(good.compared.size() == 2);
  CHECK(good.report_directory == "out");
  const auto refused = [](std::vector<const char*> others, const char* named) {
    others.insert(others.begin(), {"--compare-stages", "0,3"});
    const std::string message = error(others);
    CHECK_MESSAGE(contains(message, "--compare-stages does not go with"), message);
    CHECK_MESSAGE(contains(message, named), message);
  };
  refused({"--stage", "2"}, "--stage");
  refused({"--set", "zero_optimization.stage=2"}, "zero_optimization.stage");
  refused({"--set", "zero_core.reshard_after_forward=false"}, "reshard_after_forward");
  refused({"--checkpoint", "dir"}, "--checkpoint");
  refused({"--checkpoint", "dir", "--resume", "none"}, "--checkpoint");
  refused({"--save-model", "dir"}, "--save-model");
  refused({"--steps", "0"}, "--steps 0");
  CHECK(contains(error({"--report", "dir"}), "--report needs --compare-stages"));
  CHECK(contains(error({"--compare-stages", "0,5"}), "expected two or more of"));
}

zero::EngineReport made_up(double factor, std::int64_t first_peak) {
  zero::EngineReport report;
  for (int r = 0; r < 2; ++r) {
    zero::RankReport& rank = report.ranks.emplace_back();
    rank.memory = {{"parameters", 100, 100, r == 0 ? first_peak : 150}, {"file", 10, 0, 0}};
    rank.traffic = {{"all_gather", 8, 60 + 60 * r, 40, 20}};
    rank.time = {factor * (1 + r), factor * 2, factor * 4, factor * 8};
    rank.in_file = {{"optimizer_state", 70, 70, 70 + r}};
    rank.file = {{"read", static_cast<std::int64_t>(1000 * factor) * (1 + r), factor * 2}};
    rank.in_host = {{"gradients", 30, 30, 30 + r}, {"master_weights", 8, 8, 8}};
    rank.in_pinned = {{"gradients", 30, 30, 30 + r}};
    rank.copies = {{"to_host", static_cast<std::int64_t>(10 * factor) * (1 + r), factor * 3}};
    rank.baseline_bytes = 1000;
    rank.resident_bytes = 1200 + 100 * r;
  }
  return report;
}

TEST_CASE("a comparison whose runs go on has the others as absent, with the reason") {
  zero::report::Comparison comparison;
  const zero::report::CommonSettings settings = {"tiny", 1234, 2, 10, 2, true};
  begin(comparison, settings, {"stage 0", "stage 3", "grad_op"});
  CHECK(comparison.title == "tiny with 1,234 parameters, 2 ranks, 10 steps");
  CHECK(contains(zero::report::facts_of(settings)[0].second, "after every micro step"));
  CHECK(contains(zero::report::facts_of(settings)[1].second, "leave out the first 2"));
  zero::report::MeasuredRun run;
  run.name = "stage 0";
  run.records.resize(2);
  run.after_warm_up = run.after_all = made_up(1, 120);
  zero::report::add(comparison, run);
  zero::report::note_failure(comparison, "stage 3", "no memory\na table");
  REQUIRE(comparison.absent.size() == 2);
  CHECK(comparison.variants.front().name == "stage 0");
  CHECK(comparison.absent[0].reason == "no memory");
  CHECK(comparison.absent[1].name == "grad_op");
  CHECK(comparison.absent[1].reason == "it has not run to its end");
}

TEST_CASE("figures are of the fullest rank, per step, and of the measured steps") {
  zero::report::MeasuredRun run;
  run.name = "x";
  run.warm_up = 1;
  run.digest = 7;
  for (const double rate : {1., 500., 100., 300.})
    run.records.push_back({.loss = rate / 8, .tokens_per_second = rate});
  run.after_warm_up = made_up(1, 120);
  run.after_all = made_up(4, 120);
  const zero::report::Variant v = zero::report::figures_of(run);
  CHECK(v.peak() == 150);
  CHECK(v.planned() == 110);
  CHECK(v.baseline == 1000);
  CHECK(v.resident == 250);
  CHECK(v.wire[0].sent == doctest::Approx((60. + 120) / 2 / 4));
  CHECK(v.wire[0].inside_node == doctest::Approx(10));
  CHECK(v.wire[0].between_nodes == doctest::Approx(5));
  // Three measured steps: 3 (1 + 2) / 2 seconds, and so on.
  CHECK(v.time.compute == doctest::Approx(1.5));
  CHECK(v.time.waiting == doctest::Approx(2));
  CHECK(v.time.optimizer == doctest::Approx(4));
  CHECK(v.time.other == doctest::Approx(8));
  CHECK(v.file_bytes() == 71);
  CHECK(v.file[0].bytes == doctest::Approx(1500));
  CHECK(v.file[0].seconds == doctest::Approx(2));
  CHECK(v.host_bytes() == 39);
  CHECK(v.pinned_bytes() == 31);
  CHECK(v.copies[0].bytes == doctest::Approx(15));
  CHECK(v.copies[0].seconds == doctest::Approx(3));
  CHECK(v.tokens_per_second == 300);
  CHECK(v.steps.size() == 4);
  CHECK(v.digest == 7);
}

gpt::Options small_comparison(const std::string& folder) {
  gpt::Options options;
  options.sequence_length = 8;
  options.steps = 3;
  options.report_directory = folder;
  options.overrides = {{"train_micro_batch_size_per_gpu", "1"}};
  return options;
}

nlohmann::json run(const gpt::Options& options, int ranks, int expected_code) {
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    CHECK(gpt::compare_stages(runtime, options) == expected_code);
  });
  std::ifstream in(options.report_directory + "/report.json");
  return nlohmann::json::parse(in);
}

TEST_CASE("a variant that trains otherwise is told by its bits, and only that one") {
  const TemporaryDirectory folder;
  gpt::Options options = small_comparison(folder / "report");
  options.steps = 5;
  options.compared = {{"stage 1", {{"zero_optimization.stage", "1"}}},
                      {"more decay", {{"optimizer.params.weight_decay", "0.3"}}},
                      {"stage 3", {{"zero_optimization.stage", "3"}}}};
  const nlohmann::json report = run(options, 2, gpt::not_equal);
  CHECK(report.at("bits_equal") == false);
  const auto& variants = report.at("variants");
  CHECK(variants[0].at("bits_equal") == true);
  CHECK(variants[1].at("bits_equal") == false);
  CHECK(variants[2].at("bits_equal") == true);
  CHECK(variants[0].at("digest") == variants[2].at("digest"));
  CHECK(variants[0].at("digest") != variants[1].at("digest"));
  // The first two updates have the rate 0; the effect of the third appears in step 4.
  CHECK(contains(variants[1].at("first_difference"), "step 4: "));
}

TEST_CASE("wire formats are compared by their losses, and need not have the bits of the others") {
  const TemporaryDirectory folder;
  gpt::Options options = small_comparison(folder / "report");
  options.steps = 5;
  options.compared =
      zero::report::parse_stage_list("3+qwz+qgz,3,hybrid/2,hfsdp/2,3+hpz/2,3+qwz,3+qgz");
  const nlohmann::json report = run(options, 4, 0);
  CHECK(report.at("bits_equal") == true);
  const auto& variants = report.at("variants");
  const auto sent = [&](int variant, const char* operation) {
    return variants[variant].at("wire_bytes_per_step").at(operation).at("sent").get<double>();
  };
  for (const int encoded : {0, 5, 6}) {
    CHECK(variants[encoded].at("encoded") == true);
    CHECK(variants[encoded].at("compression_error") > 0);
    CHECK(variants[encoded].at("bits_equal") == false);
    CHECK(variants[encoded].at("final_loss") != variants[1].at("final_loss"));
  }
  for (const int plain : {1, 2, 3, 4}) {
    CHECK(variants[plain].at("bits_equal") == true);
    CHECK(variants[plain].at("compression_error") == 0);
  }
  CHECK(sent(0, "all_gather") < sent(1, "all_gather"));
  CHECK(sent(0, "all_gather") == sent(5, "all_gather"));
  CHECK(sent(0, "all_to_all") < sent(1, "reduce_scatter"));
}

TEST_CASE("formats of the file: rows that encode otherwise are compared among themselves alone") {
  const TemporaryDirectory folder;
  gpt::Options options = small_comparison(folder / "report");
  options.overrides["gradient_accumulation_steps"] = "2";
  options.overrides["zero_core.wire.reduce"] = "int8";
  options.compared = zero::report::parse_stage_list("0,3,hybrid/2,hfsdp/2");
  const nlohmann::json report = run(options, 4, 0);
  CHECK(report.at("bits_equal") == true);
  const auto& variants = report.at("variants");
  for (const int variant : {0, 1}) CHECK(variants[variant].at("encoded") == false);
  CHECK(variants[0].at("digest") == variants[1].at("digest"));
  for (const int variant : {2, 3}) {
    CHECK(variants[variant].at("encoded") == true);
    CHECK(contains(variants[variant].at("encodings"), "then int8 in blocks of 256 of sums of 2"));
  }
  CHECK(variants[2].at("digest") == variants[3].at("digest"));
  CHECK(variants[2].at("digest") != variants[0].at("digest"));
  std::ifstream page(options.report_directory + "/report.md");
  const std::string text{std::istreambuf_iterator<char>(page), {}};
  CHECK_MESSAGE(contains(text,
                         "hybrid/2 encodes gradients as int8 in blocks of 256 of each rank, "
                         "then int8 in blocks of 256 of sums of 2 ranks, and stage 0 "
                         "gradients as int8 in blocks of 256 of each rank, so its bits may "
                         "differ"),
                text);
  // Both hops are those of the groups, in every row.
  options.overrides["zero_core.gradient_sync"] = "inner";
  const nlohmann::json inner = run(options, 4, 0);
  for (const int variant : {0, 1, 2, 3})
    CHECK(inner.at("variants")[variant].at("encoded") == false);
}

TEST_CASE("stages of a pipeline have the batch of the others, and the bits of equal data ranks") {
  const TemporaryDirectory folder;
  gpt::Options options = small_comparison(folder / "report");
  options.overrides["gradient_accumulation_steps"] = "2";
  options.compared = zero::report::parse_stage_list("0,3,1/p2,3/p2,2/p4");
  const nlohmann::json report = run(options, 4, 0);
  CHECK(report.at("bits_equal") == true);
  const auto& variants = report.at("variants");
  const auto of = [&](int variant, const char* key) { return variants[variant].at(key); };
  CHECK(of(0, "digest") == of(1, "digest"));
  CHECK(of(2, "digest") == of(3, "digest"));
  CHECK(of(3, "digest") != of(1, "digest"));
  const int data_ranks[] = {4, 4, 2, 2, 1};
  for (int v = 0; v < 5; ++v) {
    CHECK(of(v, "data_ranks") == data_ranks[v]);
    CHECK(of(v, "final_loss").get<double>() ==
          doctest::Approx(of(0, "final_loss").get<double>()).epsilon(1e-5));
  }
  CHECK(of(2, "planned_bytes") < of(0, "planned_bytes"));
  std::ifstream page(options.report_directory + "/report.md");
  const std::string text{std::istreambuf_iterator<char>(page), {}};
  CHECK_MESSAGE(contains(text,
                         "stage 3/p2 sums over 2 data ranks, and stage 0 over 4, so its bits "
                         "may differ"),
                text);
  CHECK_MESSAGE(contains(text, "other sums"), text);
}

TEST_CASE("with rank_independent stages of a pipeline have the bits of all others") {
  const TemporaryDirectory folder;
  gpt::Options options = small_comparison(folder / "report");
  options.model = folder.file("config.json", R"({"model_type": "llama", "num_hidden_layers": 3,
      "hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 40, "vocab_size": 259,
      "max_position_embeddings": 32})");
  options.overrides["zero_core.rank_independent"] = "true";
  options.overrides["train_batch_size"] = "10";
  options.overrides["train_micro_batch_size_per_gpu"] = "2";
  options.compared = zero::report::parse_stage_list("0,3/p2,1/p4");
  const nlohmann::json report = run(options, 4, 0);
  for (const auto& variant : report.at("variants")) {
    CHECK(variant.at("digest") == report.at("variants")[0].at("digest"));
    CHECK(variant.at("bits_equal") == true);
  }
  std::ifstream page(options.report_directory + "/report.md");
  const std::string text{std::istreambuf_iterator<char>(page), {}};
  CHECK_MESSAGE(!contains(text, "may differ"), text);
}

TEST_CASE("keys of the file that encode at stage 3 alone do not make stage 0 differ") {
  const TemporaryDirectory folder;
  gpt::Options options = small_comparison(folder / "report");
  options.overrides["bf16.enabled"] = "true";
  options.overrides["zero_optimization.zero_quantized_gradients"] = "true";
  options.compared = zero::report::parse_stage_list("0,3,hybrid/2");
  const nlohmann::json report = run(options, 4, 0);
  const auto& variants = report.at("variants");
  CHECK(variants[0].at("encoded") == false);
  for (const int variant : {1, 2}) CHECK(variants[variant].at("encoded") == true);
  CHECK(variants[1].at("digest") == variants[2].at("digest"));
}

TEST_CASE("one gradient_sync holds for all stages, and a given one is kept") {
  const TemporaryDirectory folder;
  gpt::Options options = small_comparison(folder / "report");
  options.compared = zero::report::parse_stage_list("0,2");
  options.overrides["gradient_accumulation_steps"] = "3";
  const auto sent = [](const nlohmann::json& report, int variant) {
    return report.at("variants")[variant].at("wire_bytes_per_step").at("reduce_scatter").at("sent");
  };
  const nlohmann::json each = run(options, 2, 0);
  options.overrides["zero_core.gradient_sync"] = "last";
  const nlohmann::json last = run(options, 2, 0);
  for (int variant : {0, 1}) CHECK(sent(each, variant) == 3 * sent(last, variant).get<double>());
}

TEST_CASE("offload to host memory is no variant of CPU ranks, and the comparison reports that") {
  const TemporaryDirectory folder;
  gpt::Options options = small_comparison(folder / "report");
  options.compared = zero::report::parse_stage_list("3,3+cpu");
  const std::string message = refusal<zero::ConfigError>([&] {
    zero::testing::run_ranks(
        1, [&](zero::Runtime& runtime) { gpt::compare_stages(runtime, options); });
  });
  CHECK_MESSAGE(contains(message, "stage 3 + cpu needs --device cuda: CPU ranks keep"), message);
}

// The remarks on a GPT-2 of small blocks, with the planned bytes of each stage.
struct Remarked {
  std::vector<std::string> remarks;
  std::vector<std::int64_t> planned;
  std::int64_t parameters = 0;
};

Remarked remarks_on(const gpt::Options& options, int ranks) {
  const std::vector<gpt::Task> tasks = gpt::resolve_variants(options);
  Remarked remarked;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    names.push_back(options.compared[i].name);
    const auto plan =
        zero::plan_memory(gpt::describe(tasks[i].model), tasks[i].config, ranks, false);
    std::int64_t& bytes = remarked.planned.emplace_back();
    for (const zero::MemoryUse& use : plan.memory) bytes += use.planned;
  }
  remarked.remarks = gpt::sharding_remarks(names, tasks, ranks, false);
  remarked.parameters = tasks.front().model.parameters();
  return remarked;
}

Remarked blocks(const TemporaryDirectory& folder, int layers, const char* stages, int ranks) {
  gpt::Options options = small_comparison("");
  options.model = folder.file("config.json", R"({"n_layer": )" + std::to_string(layers) +
                                                 R"(, "n_head": 1, "n_embd": 64,
    "vocab_size": 300, "n_positions": 8})");
  options.compared = zero::report::parse_stage_list(stages);
  return remarks_on(options, ranks);
}

TEST_CASE(
    "if slots outweigh the shards, the report states that, and from how many layers they do not") {
  const TemporaryDirectory folder;
  const auto planned = [&](int layers, int ranks) {
    return blocks(folder, layers, "0,1,2,3", ranks);
  };
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    const Remarked small = planned(1, ranks);
    const auto remark =
        std::find_if(small.remarks.begin(), small.remarks.end(), [](const std::string& text) {
          return text.starts_with("stage 3 saves no memory over stage 1 here: what rests is ");
        });
    REQUIRE(remark != small.remarks.end());
    CHECK(small.planned[3] >= small.planned[1]);
    const std::string from = "it would save from ";
    const auto at = remark->find(from);
    REQUIRE_MESSAGE(at != std::string::npos, *remark);
    const int layers = std::stoi(remark->substr(at + from.size()));
    CHECK(layers > 1);
    const Remarked before = planned(layers - 1, ranks), after = planned(layers, ranks);
    CHECK(before.planned[3] >= before.planned[1]);
    CHECK(after.planned[3] < after.planned[1]);
    for (const std::string& text : after.remarks)
      CHECK(!text.starts_with("stage 3 saves no memory over stage 1 "));
    CHECK(contains(*remark, "(" + zero::report::fixed(static_cast<double>(after.parameters), 0) +
                                " parameters;"));
  }
  // One rank has no slots; parameters that are never resharded are held completely, whatever their
  // number.
  CHECK(planned(1, 1).remarks.empty());
  const std::vector<std::string> never = blocks(folder, 4, "2,grad_op", 64).remarks;
  REQUIRE(never.size() == 1);
  CHECK(contains(never[0], "grad_op saves no memory over stage 2 here"));
  CHECK(contains(never[0], "layers of this size would not change that"));
}

TEST_CASE("a run's report has the plan's remarks, and none on variants that did not run") {
  const TemporaryDirectory folder;
  gpt::Options options = small_comparison(folder / "report");
  options.compared = zero::report::parse_stage_list("1,3");
  const nlohmann::json report = run(options, 2, 0);
  CHECK(report.at("absent").empty());
  REQUIRE(report.at("remarks").size() == 1);
  CHECK(contains(report.at("remarks")[0], "stage 3 saves no memory over stage 1 here"));
  CHECK(remarks_on(options, 2).remarks.front() == report.at("remarks")[0]);
}

TEST_CASE("a variant that fails leaves a report of the others, the failure and its cause") {
  const TemporaryDirectory folder;
  gpt::Options options = small_comparison(folder / "report");
  const std::string nowhere = folder / "nowhere";
  options.compared = {{"stage 1", {{"zero_optimization.stage", "1"}}},
                      {"no disk",
                       {{"zero_optimization.stage", "1"},
                        {"zero_optimization.offload_optimizer.device", "nvme"},
                        {"zero_optimization.offload_optimizer.nvme_path", nowhere}}},
                      {"stage 3", {{"zero_optimization.stage", "3"}}}};
  const std::string message = refusal<zero::Error>([&] {
    zero::testing::run_ranks(
        2, [&](zero::Runtime& runtime) { gpt::compare_stages(runtime, options); });
  });
  CHECK_MESSAGE(contains(message, "nowhere"), message);
  std::ifstream in(options.report_directory + "/report.json");
  const nlohmann::json report = nlohmann::json::parse(in);
  REQUIRE(report.at("variants").size() == 1);
  CHECK(report.at("variants")[0].at("name") == "stage 1");
  CHECK(report.at("planned") == false);
  REQUIRE(report.at("absent").size() == 2);
  CHECK(report.at("absent")[0].at("name") == "no disk");
  CHECK(contains(report.at("absent")[0].at("reason"), "nowhere"));
  CHECK(report.at("absent")[1].at("name") == "stage 3");
  CHECK(contains(report.at("absent")[1].at("reason"), "has not run to its end"));
}

TEST_CASE("a variant that finds no memory is named") {
  const TemporaryDirectory folder;
  gpt::Options options = small_comparison(folder / "report");
  options.model = folder.file("config.json", R"({"n_layer": 4000, "n_head": 1, "n_embd": 16384,
    "vocab_size": 300, "n_positions": 8})");
  options.compared = zero::report::parse_stage_list("0,3");
  std::string message;
  try {
    zero::testing::run_ranks(
        1, [&](zero::Runtime& runtime) { gpt::compare_stages(runtime, options); });
  } catch (const zero::MemoryError& error) {
    message = error.what();
  }
  CHECK_MESSAGE(message.starts_with("--compare-stages, stage 3 (leave it out"), message);
  std::ifstream page(options.report_directory + "/report.html");
  const std::string html{std::istreambuf_iterator<char>(page), {}};
  CHECK(contains(html, "class=\"verdict fails\""));
  CHECK(contains(html, "Nothing ran to its end."));
  CHECK(contains(html, "stage 3: cannot reserve "));
  CHECK(!contains(html, "planned      current"));
}

}  // namespace
