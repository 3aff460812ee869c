// State saved at any stage and world size loads at any other; the run continues bitwise identically
// if the world size is the same.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "tests/checkpoint/engine_support.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"

namespace {

using zero::Config;
using zero::Engine;
using zero::Runtime;
using zero::tests::config_of;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::strategies;
using zero::tests::Strategy;
using zero::tests::TemporaryDirectory;
using zero::tests::train_until;
using zero::tests::with_engine;

constexpr int saved_step = 3, last_step = 5;
constexpr int most_ranks = 5;

std::string root_of(const TemporaryDirectory& directory, int ranks) {
  return directory / ("ranks-" + std::to_string(ranks));
}

struct Reference {
  std::uint64_t digest = 0;  // at saved_step
  toy::Trace rest;           // from there to last_step
};

// One checkpoint per strategy, and the continuation of each run.
Reference save_all(const TemporaryDirectory& directory, int ranks, bool bf16) {
  Reference reference;
  for (const Strategy& strategy : strategies)
    with_engine(ranks, config_of(strategy, bf16), [&](Runtime& runtime, Engine& engine) {
      engine.initialize(toy::fill);
      const std::uint64_t digest = train_until(runtime, engine, saved_step).digest;
      engine
          .save_checkpoint(root_of(directory, ranks), {strategy.name, {{"note", "from the test"}}})
          .wait();
      const toy::Trace rest = train_until(runtime, engine, last_step);
      if (!runtime.is_root()) return;
      if (strategy.stage == 0) reference = {digest, rest};
      CHECK(digest == reference.digest);
      CHECK(rest == reference.rest);
    });
  return reference;
}

// Loads the checkpoints of all strategies, one after another: the first into a fresh engine, the
// others over its present values.
void check_loads(const TemporaryDirectory& directory, int saved_ranks, const Reference& reference,
                 int ranks, const Config& config) {
  with_engine(ranks, config, [&](Runtime& runtime, Engine& engine) {
    for (const Strategy& saved : strategies) {
      const auto resumed =
          engine.resume(root_of(directory, saved_ranks), zero::Resume::must_exist, saved.name);
      const std::uint64_t digest = engine.digest();
      const bool same_world = ranks == saved_ranks;
      const toy::Trace rest = same_world ? train_until(runtime, engine, last_step) : toy::Trace{};
      if (!runtime.is_root()) continue;
      CAPTURE(saved.name);
      REQUIRE(resumed);
      CHECK(resumed->step == saved_step);
      CHECK(resumed->tag == saved.name);
      CHECK(resumed->client_state == zero::Text{{"note", "from the test"}});
      CHECK(digest == reference.digest);
      if (same_world) CHECK(rest == reference.rest);
    }
  });
}

void check_matrix(bool bf16) {
  const TemporaryDirectory directory;
  for (int saved_ranks = 1; saved_ranks <= most_ranks; ++saved_ranks) {
    const Reference reference = save_all(directory, saved_ranks, bf16);
    for (int ranks = 1; ranks <= most_ranks; ++ranks)
      for (const Strategy& loaded : strategies) {
        CAPTURE(saved_ranks);
        CAPTURE(ranks);
        CAPTURE(loaded.name);
        check_loads(directory, saved_ranks, reference, ranks, config_of(loaded, bf16));
      }
  }
}

using Arrays = std::map<std::string, std::vector<float>>;

Arrays arrays_of(Engine& engine, const std::vector<std::string>& kinds) {
  Arrays arrays;
  const toy::Dims d;
  const std::map<std::string, std::int64_t> sizes = {{"embed.wte", d.vocabulary * d.channels},
                                                     {"block.2.weight", d.channels * d.channels},
                                                     {"block.4.norm", d.channels},
                                                     {"head.gain", d.channels},
                                                     {"embed.unused", 7},
                                                     {"embed.empty", 0}};
  for (const auto& [name, size] : sizes)
    for (const std::string& kind : kinds) {
      std::vector<float>& values = arrays[name + " " + kind];
      values.resize(static_cast<std::size_t>(size));
      engine.read(name, kind, values);
    }
  return arrays;
}

}  // namespace

TEST_CASE("fp32: save at N ranks, load at M, every pair of stages") {
  check_matrix(false);
}

TEST_CASE("every optimizer resumes as if it had not stopped") {
  for (const char* type : {"Lion", "Adagrad", "Lamb", "SGD", "Muon", "Adafactor"})
    for (const int ranks : {1, 3})
      for (const Strategy& strategy : {strategies[0], strategies[3]}) {
        CAPTURE(type);
        CAPTURE(ranks);
        const TemporaryDirectory directory;
        Config config = config_of(strategy, false);
        config.optimizer = zero::optim::default_options(type);
        config.optimizer.learning_rate = 0.01;
        if (config.optimizer.type == "SGD") config.optimizer.momentum = 0.9;
        toy::Trace rest, resumed;
        with_engine(ranks, config, [&](Runtime& runtime, Engine& engine) {
          engine.initialize(toy::fill);
          train_until(runtime, engine, saved_step);
          engine.save_checkpoint(directory / "runs").wait();
          const toy::Trace own = train_until(runtime, engine, last_step);
          if (runtime.is_root()) rest = own;
        });
        config.zero_optimization.stage = strategy.stage == 0 ? 3 : 1;  // at another stage
        with_engine(ranks, config, [&](Runtime& runtime, Engine& engine) {
          engine.resume(directory / "runs");
          const toy::Trace own = train_until(runtime, engine, last_step);
          if (runtime.is_root()) resumed = own;
        });
        CHECK(resumed == rest);
      }
}

TEST_CASE("states that another rule wrote are refused by parameter") {
  const TemporaryDirectory directory;
  Config config = config_of(strategies[3], false);
  config.optimizer = zero::optim::default_options("Muon");
  with_engine(2, config, [&](Runtime&, Engine& engine) {
    engine.initialize(toy::fill);
    engine.save_checkpoint(directory / "runs").wait();
  });
  zero::testing::run_ranks(2, [&](Runtime& runtime) {
    Config other = config;
    other.optimizer = {};
    Engine engine(runtime, toy::describe({}), other);
    try {
      engine.resume(directory / "runs");
      FAIL("was loaded");
    } catch (const zero::LoadError& error) {
      const std::string text = error.what();
      CHECK(text.find("momentum_buffer of Muon is not one of this run's AdamW") !=
            std::string::npos);
      CHECK(text.find("block.0.weight was saved without exp_avg") != std::string::npos);
    }
  });
}

TEST_CASE("bf16: save at N ranks, load at M, every pair of stages") {
  check_matrix(true);
}

TEST_CASE("fp32 loads into bf16 and back: masters and moments bit for bit") {
  const TemporaryDirectory directory;
  const std::vector<std::string> kinds = {"master", "exp_avg", "exp_avg_sq"};
  for (const bool saved_bf16 : {false, true}) {
    const std::string root = directory / (saved_bf16 ? "bf16" : "fp32");
    Arrays expected;
    with_engine(2, config_of(strategies[2], saved_bf16), [&](Runtime& runtime, Engine& engine) {
      engine.initialize(toy::fill);
      train_until(runtime, engine, saved_step);
      engine.save_checkpoint(root).wait();
      const Arrays own = arrays_of(engine, kinds);
      if (runtime.is_root()) expected = own;
    });
    for (const Strategy& strategy : strategies)
      with_engine(3, config_of(strategy, !saved_bf16), [&](Runtime& runtime, Engine& engine) {
        engine.resume(root);
        const Arrays own = arrays_of(engine, kinds);
        const Arrays values = arrays_of(engine, {"value"});
        const toy::Trace rest = train_until(runtime, engine, last_step);
        if (!runtime.is_root()) return;
        CHECK(own == expected);
        CHECK(std::isfinite(rest.losses.back()));
        for (const auto& [name, whole] : values) {
          const auto& master = own.at(name.substr(0, name.find(' ')) + " master");
          for (std::size_t i = 0; i < whole.size(); ++i)
            REQUIRE(
                whole[i] ==
                (saved_bf16 ? master[i] : zero::to_float(zero::from_float<zero::bf16>(master[i]))));
        }
      });
  }
}

TEST_CASE("a running engine goes back to a checkpoint") {
  const TemporaryDirectory directory;
  for (const Strategy& strategy : strategies)
    with_engine(3, config_of(strategy, true), [&](Runtime& runtime, Engine& engine) {
      const std::string root = directory / strategy.name;
      engine.initialize(toy::fill);
      train_until(runtime, engine, saved_step);
      engine.save_checkpoint(root).wait();
      const toy::Trace first = train_until(runtime, engine, last_step);
      engine.resume(root);
      const toy::Trace second = train_until(runtime, engine, last_step);
      if (runtime.is_root()) CHECK(first == second);
    });
}

TEST_CASE("a save and a resume refuse wrong calls of the program") {
  const TemporaryDirectory directory;
  with_engine(2, config_of(strategies[1], false), [&](Runtime& runtime, Engine& engine) {
    CHECK(!engine.resume(directory / "none", zero::Resume::if_any));
    CHECK_THROWS_AS(engine.resume(directory / "none"), zero::LoadError);
    CHECK_THROWS_AS(engine.save_checkpoint(directory / "a"), zero::UsageError);
    engine.initialize(toy::fill);
    for (const char* tag : {"../a", "a/b", ".hidden", "latest", "a\nb"})
      CHECK_THROWS_AS(engine.save_checkpoint(directory / "a", {tag}), zero::UsageError);
    const zero::SaveTicket saved = engine.save_checkpoint(directory / "a");
    CHECK(saved.wait());
    CHECK_THROWS_AS(engine.save_checkpoint(directory / "a"), zero::SaveError);
    CHECK_THROWS_AS(
        engine.save_checkpoint(directory / "a", {"t", {{"rank", std::to_string(runtime.rank())}}}),
        zero::DisagreementError);
    for (zero::MicroStep micro : engine.micro_steps()) {
      if (micro.last()) CHECK_THROWS_AS(engine.save_checkpoint(directory / "a"), zero::UsageError);
      CHECK(saved.wait());  // the result of a finished save can be read anywhere
      break;
    }
  });
}

TEST_CASE("values that are not finite are refused unless the config allows them") {
  const TemporaryDirectory directory;
  const auto fill = [](zero::ParamShard shard) {
    toy::fill(shard);
    const std::int64_t at = 77 - shard.begin;
    if (shard.name == "block.2.weight" && at >= 0 && at < std::ssize(shard.values))
      shard.values[static_cast<std::size_t>(at)] = std::nanf("");
  };
  for (const bool bf16 : {false, true}) {
    const std::string root = directory / (bf16 ? "bf16" : "fp32");
    const std::string model = root + "/model";
    Config saving = config_of(strategies[2], bf16);
    CHECK(contains(refusal<zero::UsageError>([&] {
                     with_engine(2, saving,
                                 [&](Runtime&, Engine& engine) { engine.initialize(fill); });
                   }),
                   "zero_core.allow_non_finite_weights"));
    saving.zero_core.allow_non_finite_weights = true;
    with_engine(2, saving, [&](Runtime&, Engine& engine) {
      engine.initialize(fill);
      engine.save_checkpoint(root).wait();
      engine.export_model(model);
    });
    with_engine(3, config_of(strategies[3], bf16), [&](Runtime& runtime, Engine& engine) {
      engine.initialize(toy::fill);
      const std::uint64_t before = engine.digest();
      const std::string words = refusal<zero::LoadError>([&] { engine.resume(root); });
      CHECK(contains(words, "block.2.weight is not finite at element 77"));
      CHECK(contains(words, "zero_core.allow_non_finite_weights"));
      CHECK(engine.digest() == before);
      runtime.sum(0);
    });
    CHECK(contains(refusal<zero::LoadError>([&] {
                     with_engine(2, config_of(strategies[1], bf16),
                                 [&](Runtime&, Engine& engine) { engine.load_weights(model); });
                   }),
                   "block.2.weight is not finite at element 77"));
    Config config = config_of(strategies[3], bf16);
    config.zero_core.allow_non_finite_weights = true;
    with_engine(3, config, [&](Runtime&, Engine& engine) {
      CHECK(engine.resume(root));
      engine.load_weights(model);
    });
  }
}

TEST_CASE("a model in several files is the model in one") {
  const TemporaryDirectory directory;
  const std::string one = directory / "one", many = directory / "many";
  std::uint64_t digest = 0;
  with_engine(2, config_of(strategies[3], true), [&](Runtime& runtime, Engine& engine) {
    engine.initialize(toy::fill);
    engine.export_model(one);
    engine.export_model(many);  // replaced by the next export
    engine.export_model(many, {.max_file_bytes = 700});
    if (runtime.is_root()) CHECK(!std::filesystem::exists(many + "/model.safetensors"));
  });
  for (const std::string& path :
       {one, one + "/model.safetensors", many, many + "/model.safetensors.index.json"})
    with_engine(3, config_of(strategies[1], true), [&](Runtime& runtime, Engine& engine) {
      engine.load_weights(path);
      const std::uint64_t own = engine.digest();
      if (!runtime.is_root()) return;
      if (digest == 0) digest = own;
      CHECK(own == digest);
    });
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(many))
    files += entry.path().extension() == ".safetensors";
  CHECK(files > 5);
  const auto load = [&] {
    with_engine(1, config_of(strategies[0], true),
                [&](Runtime&, Engine& engine) { engine.load_weights(many); });
  };
  const std::string index = many + "/model.safetensors.index.json";
  const std::string text = zero::tests::read_text(index);
  const auto with = [&](const std::string& other) {
    std::ofstream(index, std::ios::trunc) << other;
    return refusal<zero::LoadError>(load);
  };
  CHECK(contains(with("{}"), "weight_map"));
  CHECK(contains(with(R"({"weight_map": {}})"), "names no tensor"));
  CHECK(contains(with(R"({"weight_map": {"a": "../x"}})"), "dot"));
  CHECK(contains(with(R"({"weight_map": {"a": "missing.safetensors"}})"), "missing.safetensors"));
  CHECK(contains(
      with(R"({"weight_map": {"a": "model-00001-of-000)" + std::string(files < 10 ? "0" : "") +
           std::to_string(files) + R"(.safetensors"}})"),
      "has no tensor \"a\""));
  CHECK(with(text) == "");
}

TEST_CASE("the longest name of a parameter is one that checkpoints hold") {
  const TemporaryDirectory directory;
  zero::testing::run_ranks(2, [&](Runtime& runtime) {
    zero::ModelSpec model;
    model.unit("u").param(std::string(958, 'x'), {3, 300}).buffer(std::string(958, 'y'), {2});
    std::uint64_t digest = 0;
    for (const bool saves : {true, false}) {
      Engine engine(runtime, model, config_of(strategies[3], false));
      if (!saves) CHECK(engine.resume(directory / "root")->step == 0);
      if (saves)
        engine.initialize([](zero::ParamShard shard) { std::ranges::fill(shard.values, 0.5f); });
      if (saves) engine.save_checkpoint(directory / "root").wait();
      if (saves) digest = engine.digest();
      CHECK(engine.digest() == digest);
    }
  });
}
