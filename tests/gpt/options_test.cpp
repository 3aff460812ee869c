// The command line and the model's config files: accepted values, and messages for refused ones.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>

#include "examples/gpt/model/initial_values.h"
#include "examples/gpt/model/model_config.h"
#include "examples/gpt/model/normals.h"
#include "examples/gpt/train/options.h"
#include "tests/gpt/plain_model.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"

namespace {

using gpt::Options;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "train_gpt");
  return gpt::parse_options(static_cast<int>(arguments.size()), arguments.data());
}

TEST_CASE("options in both spellings") {
  for (const char* name : {"--deepspeed_config", "--deepspeed-config", "--deepspeed"})
    CHECK(parse({name, "my_file.json"}).config_file == "my_file.json");
  CHECK(parse({"--deepspeed_config=my_file.json"}).config_file == "my_file.json");
  CHECK(parse({"--deepspeed", "--deepspeed_config", "a.json"}).config_file == "a.json");
  const Options o = parse({"--sequence_length", "32", "--save-model=out_dir", "--log_json",
                           "l.json", "--data", "a_b", "--data", "c", "--stage", "3", "--set",
                           "a.b_c=1", "--set", "d=x=y", "--seed", "7"});
  CHECK(o.sequence_length == 32);
  CHECK(o.save_directory == "out_dir");
  CHECK(o.log_file == "l.json");
  CHECK(o.data == std::vector<std::string>{"a_b", "c"});
  CHECK(o.overrides ==
        zero::Text{{"zero_optimization.stage", "3"}, {"a.b_c", "1"}, {"d", "x=y"}, {"seed", "7"}});
}

TEST_CASE("help and version answer instead of training") {
  CHECK(contains(*parse({"--help"}).answer, "--sequence-length"));
  CHECK(contains(*parse({"--version"}).answer, "train_gpt"));
  CHECK(!parse({}).answer.has_value());
}

TEST_CASE("wrong options are errors that name them") {
  const auto error = [](std::vector<const char*> arguments) {
    return refusal<zero::ConfigError>([&] { parse(arguments); });
  };
  CHECK(contains(error({"--stpes", "3"}), "--stpes"));
  CHECK(contains(error({"--steps", "many"}), "many"));
  CHECK(contains(error({"--steps", "-1"}), "--steps -1"));
  CHECK(contains(error({"--set", "stage3"}), "expected path=value"));
  CHECK(contains(error({"--deepspeed", "a", "--deepspeed_config", "b"}), "different files"));
  CHECK(contains(error({"stray"}), "stray"));
  CHECK(contains(error({"--device", "tpu"}), "--device tpu: expected cpu, cuda or auto"));
}

TEST_CASE("without a config the trainer's defaults hold, and overrides win") {
  const zero::Config defaults = gpt::load_training_config(parse({}), 64);
  CHECK(defaults.batch.train_micro_batch_size_per_gpu == 4);
  CHECK(defaults.zero_optimization.stage == 0);
  CHECK(defaults.optimizer.learning_rate == 0.003);
  const zero::Config changed = gpt::load_training_config(
      parse({"--stage", "2", "--seed", "5", "--set", "train_batch_size=8"}), 64);
  CHECK(changed.zero_optimization.stage == 2);
  CHECK(changed.seed == 5);
  CHECK(changed.batch.train_batch_size == 8);
  CHECK(changed.batch.train_micro_batch_size_per_gpu == 0);

  const zero::Config others = gpt::load_training_config(
      parse({"--set", "optimizer.type=SGD", "--set", "scheduler.type=OneCycle", "--set",
             "scheduler.params.cycle_min_lr=0", "--set", "scheduler.params.cycle_max_lr=0.1"}),
      64);
  CHECK(others.optimizer.type == "SGD");
  CHECK(others.scheduler.type == "OneCycle");
}

TEST_CASE("an object that --set gives replaces the trainer's defaults of its section") {
  const auto with = [](std::vector<const char*> settings) {
    std::vector<const char*> arguments;
    for (const char* setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return gpt::load_training_config(parse(arguments), 64);
  };
  const zero::Config sgd = with({R"(optimizer={"type": "SGD", "params": {"lr": 0.5}})"});
  CHECK(sgd.optimizer.type == "SGD");
  CHECK(sgd.optimizer.learning_rate == 0.5);
  CHECK(with({"optimizer={type: \"Lion\",}"}).optimizer.type == "Lion");
  const zero::Config params =
      with({R"(optimizer.params={"lr": 0.25})", "optimizer.params.eps=1e-3"});
  CHECK(params.optimizer.type == "AdamW");
  CHECK(params.optimizer.learning_rate == 0.25);
  CHECK(params.optimizer.epsilon == 1e-3);
  CHECK(params.optimizer.weight_decay != 0.1);
  CHECK(with({R"(scheduler={"type": "WarmupLR", "params": {"warmup_num_steps": 7}})"})
            .scheduler.warmup_num_steps == 7);
  CHECK(with({R"(elasticity={"enabled": true, "max_train_batch_size": 32,
                             "micro_batch_sizes": [4]})"})
            .batch.train_micro_batch_size_per_gpu == 0);
  CHECK(with({R"(elasticity={"enabled": false})"}).batch.train_micro_batch_size_per_gpu == 4);
  // In any spelling.
  CHECK(with({R"(zero_optimization={"stage": 3, "max_live_parameters": 5})"})
            .zero_optimization.max_live_parameters == 5);
  const auto refused = [](const char* setting) {
    return refusal<zero::ConfigError>([&] {
      parse({"--compare-stages", "0,1", "--set", setting});
    });
  };
  CHECK(contains(refused(R"(zero_optimization={"stage": 3})"), "sets the stage itself"));
  CHECK(contains(refused(R"(zero_core={"trace": "t.json"})"), "--trace"));
  CHECK(refused(R"(zero_optimization={"overlap_comm": true})").empty());
}

TEST_CASE("presets have the published parameter counts") {
  CHECK(gpt::load_model_config("gpt2", 256).parameters() == 124439808);
  CHECK(gpt::load_model_config("gpt2-medium", 256).parameters() == 354823168);
  CHECK(gpt::load_model_config("gpt2-large", 256).parameters() == 774030080);
  CHECK(gpt::load_model_config("gpt2-xl", 256).parameters() == 1557611200);
  CHECK(gpt::load_model_config("tiny", 256).vocabulary == 256);
  for (const char* name : {"tiny", "mini", "gpt2"}) {
    const gpt::ModelConfig config = gpt::load_model_config(name, 300);
    std::int64_t count = 0;
    for (const auto& [parameter, shape] : gpt::testing::parameters_of(config))
      count += gpt::testing::elements_of(shape);
    CHECK(count == config.parameters());
  }
}

TEST_CASE("GPT-2's dropout is reported to have no effect") {
  const TemporaryDirectory folder;
  const auto notices = [&](const std::string& more) {
    return gpt::load_model_config(
               folder.file("config.json", R"({"n_layer": 2, "n_head": 3, "n_embd": 36,
                                              "vocab_size": 61, "n_positions": 17)" +
                                              more + "}"),
               256)
        .notices;
  };
  CHECK(notices("").empty());
  CHECK(notices(R"(, "attn_pdrop": 0.0, "resid_pdrop": 0)").empty());
  const std::vector<std::string> said =
      notices(R"(, "attn_pdrop": 0.1, "embd_pdrop": 0, "resid_pdrop": 0.2)");
  REQUIRE(said.size() == 1);
  CHECK(contains(said[0],
                 "config.json: attn_pdrop 0.1, resid_pdrop 0.2: no effect, "
                 "this trainer has no dropout"));
}

TEST_CASE("a config.json survives writing and reading") {
  const TemporaryDirectory folder;
  gpt::ModelConfig config{"x", 3, 5, 40, 61, 24, 1e-6};
  gpt::save_model_config(config, folder.path().string());
  const gpt::ModelConfig read = gpt::load_model_config(folder / "config.json", 256);
  CHECK(read.layers == 3);
  CHECK(read.heads == 5);
  CHECK(read.channels == 40);
  CHECK(read.vocabulary == 61);
  CHECK(read.context == 24);
  CHECK(read.norm_epsilon == 1e-6);
  // A new file replaces it when it is complete.
  std::filesystem::create_hard_link(folder / "config.json", folder / "before.json");
  config.layers = 4;
  gpt::save_model_config(config, folder.path().string());
  CHECK(gpt::load_model_config(folder / "before.json", 256).layers == 3);
  CHECK(gpt::load_model_config(folder / "config.json", 256).layers == 4);
  CHECK(!std::filesystem::exists(folder / ".tmp-config.json"));
}

TEST_CASE("unusable model configs name every key at once") {
  const TemporaryDirectory folder;
  const auto error = [&](const std::string& text) {
    const std::string path = folder.file("config.json", text);
    return refusal<zero::ConfigError>([&] { gpt::load_model_config(path, 256); });
  };
  const nlohmann::json good = {
      {"n_layer", 1}, {"n_head", 2}, {"n_embd", 8}, {"vocab_size", 10}, {"n_positions", 4}};
  CHECK(error(good.dump()) == "");
  auto bad = good;
  bad.update({{"n_head", 3},
              {"activation_function", "relu"},
              {"n_inner", 5},
              {"tie_word_embeddings", false}});
  bad.erase("n_layer");
  const std::string message = error(bad.dump());
  for (const char* part :
       {"n_layer is missing", "n_embd 8 must be a multiple of n_head 3", "activation_function",
        "\"gelu_new\"", "n_inner is 5", "tie_word_embeddings is false"})
    CHECK(contains(message, part));
  CHECK(contains(error("{\"n_layer\": "), "not valid JSON"));
  CHECK(contains(error("[]"), "must hold a JSON object"));
  CHECK(contains(error(R"({"n_layer": 1e30})"), "n_layer must be an integer"));
  CHECK(contains(error(R"({"n_layer": 99999999})"), "outside 1 to 65536"));
  CHECK(contains(refusal<zero::ConfigError>([] { gpt::load_model_config("gtp2", 256); }),
                 "gpt2-medium"));
  CHECK(contains(
      refusal<zero::ConfigError>([&] { gpt::load_model_config(folder.path().string(), 256); }),
      "is a directory"));
}

TEST_CASE("start values have the bits of the C library's functions") {
  const gpt::CounterRandom random(7, "some.weight");
  std::vector<float> values(100'001);
  gpt::fill_normals(random, 3, 0.02, values);
  std::size_t different = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto pair = static_cast<std::uint64_t>(i + 3) / 2;
    const double radius = std::sqrt(-2 * std::log(random.uniform(2 * pair)));
    const double angle = 2 * std::numbers::pi * random.uniform(2 * pair + 1);
    const double normal = radius * ((i + 3) % 2 == 0 ? std::cos(angle) : std::sin(angle));
    different += values[i] != static_cast<float>(0.02 * normal);
  }
  CHECK(different == 0);
}

TEST_CASE("start values do not depend on the cut, and have GPT-2's deviations") {
  const gpt::ModelConfig config = gpt::load_model_config("mini", 256);
  zero::ThreadPool one(1), three(3);
  const std::vector<std::int64_t> shape = {512, 128};
  const auto fill = [&](const char* name, std::int64_t begin, std::span<float> values,
                        zero::ThreadPool& pool) {
    gpt::InitialValues(config, 42, pool).fill({name, shape, begin, values});
  };
  std::vector<float> whole(512 * 128), parts(whole.size()), other(whole.size());
  const char* name = "transformer.h.0.mlp.c_proj.weight";
  fill(name, 0, whole, one);
  const std::span<float> target(parts);
  fill(name, 0, target.first(777), three);
  fill(name, 777, target.subspan(777), three);
  CHECK(whole == parts);
  fill("transformer.h.1.mlp.c_proj.weight", 0, other, one);
  CHECK(whole != other);
  double squares = 0;
  for (const float value : whole) squares += static_cast<double>(value) * value;
  CHECK(std::sqrt(squares / static_cast<double>(whole.size())) ==
        doctest::Approx(0.02 / std::sqrt(8.0)).epsilon(0.02));
}

}  // namespace
