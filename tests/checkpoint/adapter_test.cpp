// An adapter over a frozen base, like LoRA: weights of a part, initialization of the rest,
// checkpoints and exports of the trained parameters alone; buffers, and state of single ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/checkpoint/engine_support.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "zero/checkpoint/format/manifest.h"
#include "zero/checkpoint/model_files.h"

namespace {

using zero::Engine;
using zero::Runtime;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

constexpr int width = 40, rank_of_adapter = 3, layers = 4;

zero::ModelSpec base_model() {
  zero::ModelSpec model;
  for (int l = 0; l < layers; ++l)
    model.unit("l" + std::to_string(l)).param("w", {width, width}).buffer("mean", {width});
  return model;
}

// The last layer also has counts of batches, like BatchNorm.
zero::ModelSpec adapted_model() {
  zero::ModelSpec model;
  for (int l = 0; l < layers; ++l)
    model.unit("l" + std::to_string(l))
        .param("w", {width, width}, {.trainable = false})
        .param("a", {rank_of_adapter, width})
        .param("b", {width, rank_of_adapter})
        .buffer("mean", {width});
  model.unit("head").param("scale", {width}).buffer("batches", {1}, zero::DType::int64);
  return model;
}

float base_value(std::int64_t i) {
  return 0.1f * std::sin(static_cast<float>(i * 7919 % 10007));
}

void fill(zero::ParamShard shard) {
  for (std::size_t i = 0; i < shard.values.size(); ++i)
    shard.values[i] = shard.name.ends_with(".b") ? 0.f
                      : shard.name == "head.scale"
                          ? 1.f
                          : base_value(shard.begin + static_cast<std::int64_t>(i));
}

zero::Config config_of(int stage, bool background = false) {
  zero::Config config = toy::config(stage, {});
  config.bf16_enabled = false;
  config.checkpoint.decoupled = background;
  return config;
}

// y = w x + b (a x) through all layers; the loss is half the squared difference of x and a scaled
// y.
void step(Runtime& runtime, Engine& engine) {
  const auto layer = [&](int l) -> zero::Unit& {
    return engine.units()[static_cast<std::size_t>(l)];
  };
  for (zero::MicroStep micro : engine.micro_steps()) {
    std::vector<std::vector<float>> x(layers + 1, std::vector<float>(width));
    std::vector<std::vector<float>> inner(layers, std::vector<float>(rank_of_adapter));
    for (int i = 0; i < width; ++i)
      x[0][i] = std::cos(static_cast<float>((engine.step_count() + runtime.rank() + 1) * i));
    for (int l = 0; l < layers; ++l) {
      auto scope = layer(l).forward();
      const float *w = scope.value<float>("w"), *a = scope.value<float>("a"),
                  *b = scope.value<float>("b");
      for (int r = 0; r < rank_of_adapter; ++r)
        for (int i = 0; i < width; ++i) inner[l][r] += a[r * width + i] * x[l][i];
      for (int i = 0; i < width; ++i) {
        for (int j = 0; j < width; ++j) x[l + 1][i] += w[i * width + j] * x[l][j];
        for (int r = 0; r < rank_of_adapter; ++r)
          x[l + 1][i] += b[i * rank_of_adapter + r] * inner[l][r];
        float& mean = engine.buffer<float>("l" + std::to_string(l) + ".mean")[i];
        mean = 0.9f * mean + 0.1f * x[l + 1][i];
      }
    }
    ++*engine.buffer<std::int64_t>("head.batches");
    std::vector<float> d(width);
    {
      { auto scope = layer(layers).forward(); }
      auto scope = layer(layers).backward();
      const float* scale = scope.value<float>("scale");
      float* dscale = scope.grad<float>("scale");
      double loss = 0;
      for (int i = 0; i < width; ++i) {
        const float error = scale[i] * x[layers][i] - x[0][i];
        loss += 0.5 * error * error;
        dscale[i] += error * x[layers][i] * micro.loss_scale();
        d[i] = error * scale[i] * micro.loss_scale();
      }
      micro.loss(loss);
    }
    for (int l = layers - 1; l >= 0; --l) {
      auto scope = layer(l).backward();
      const float *w = scope.value<float>("w"), *a = scope.value<float>("a"),
                  *b = scope.value<float>("b");
      float *da = scope.grad<float>("a"), *db = scope.grad<float>("b");
      std::vector<float> dx(width);
      for (int r = 0; r < rank_of_adapter; ++r) {
        float through = 0;
        for (int i = 0; i < width; ++i) {
          db[i * rank_of_adapter + r] += d[i] * inner[l][r];
          through += b[i * rank_of_adapter + r] * d[i];
        }
        for (int i = 0; i < width; ++i) {
          da[r * width + i] += through * x[l][i];
          dx[i] += through * a[r * width + i];
        }
      }
      for (int j = 0; j < width; ++j)
        for (int i = 0; i < width; ++i) dx[j] += w[i * width + j] * d[i];
      d = dx;
    }
  }
  engine.step().wait();
}

// Writes a base to a file, with buffers of the value 2.
void export_base(const std::string& folder) {
  zero::testing::run_ranks(2, [&](Runtime& runtime) {
    Engine engine(runtime, base_model(), config_of(3));
    engine.initialize(fill);
    for (int l = 0; l < layers; ++l)
      std::fill_n(engine.buffer<float>("l" + std::to_string(l) + ".mean"), width, 2.f);
    engine.export_model(folder);
  });
}

std::vector<std::string> load_base(Engine& engine, const std::string& folder) {
  const std::vector<std::string> lacking =
      engine.load_weights(folder, {.allow_missing = "*.a,*.b,head.*"});
  engine.initialize_rest(fill);
  return lacking;
}

std::vector<float> means_of(Engine& engine) {
  std::vector<float> means;
  for (int l = 0; l < layers; ++l) {
    const float* mean = engine.buffer<float>("l" + std::to_string(l) + ".mean");
    means.insert(means.end(), mean, mean + width);
  }
  return means;
}

}  // namespace

TEST_CASE("an adapter takes its base from a file and initializes the rest") {
  const TemporaryDirectory directory;
  export_base(directory / "base");
  for (const int stage : {0, 1, 2, 3})
    zero::testing::run_ranks(3, [&](Runtime& runtime) {
      Engine engine(runtime, adapted_model(), config_of(stage));
      CHECK(contains(refusal<zero::LoadError>([&] { engine.load_weights(directory / "base"); }),
                     "l0.a is missing"));
      CHECK(contains(refusal<zero::LoadError>([&] {
                       engine.load_weights(directory / "base", {.allow_missing = "*.a"});
                     }),
                     "l0.b is missing"));
    });
  for (const int stage : {0, 1, 2, 3})
    zero::testing::run_ranks(3, [&](Runtime& runtime) {
      Engine engine(runtime, adapted_model(), config_of(stage));
      const std::vector<std::string> lacking =
          engine.load_weights(directory / "base", {.allow_missing = "*.a,*.b,head.*"});
      CHECK(lacking.size() == 2 * layers + 2);
      CHECK(lacking.front() == "l0.a");
      CHECK(lacking.back() == "head.batches");
      CHECK(contains(refusal<zero::UsageError>([&] { engine.export_model(directory / "no"); }),
                     "l0.a has no values to export"));
      int filled = 0;
      engine.initialize_rest([&](zero::ParamShard shard) {
        filled += static_cast<int>(shard.values.size());
        CHECK_FALSE(shard.name.ends_with(".w"));
        fill(shard);
      });
      std::vector<float> w(width * width), scale(width);
      engine.read("l2.w", "value", w);
      engine.read("head.scale", "value", scale);
      CHECK(w[77] == base_value(77));
      CHECK(scale[3] == 1.f);
      CHECK(means_of(engine) == std::vector<float>(layers * width, 2.f));
      CHECK(*engine.buffer<std::int64_t>("head.batches") == 0);
      step(runtime, engine);
    });
}

TEST_CASE("checkpoints of only the trained parameters resume over the same base, at any stage") {
  const TemporaryDirectory directory;
  export_base(directory / "base");
  for (const bool background : {false, true}) {
    const std::string folder = directory / (background ? "behind" : "at-once");
    std::uint64_t expected = 0;
    std::vector<float> means;
    for (const int stage : {0, 1, 2, 3})
      zero::testing::run_ranks(3, [&](Runtime& runtime) {
        Engine engine(runtime, adapted_model(), config_of(stage, background));
        load_base(engine, directory / "base");
        step(runtime, engine);
        step(runtime, engine);
        const zero::SaveTicket saved = engine.save_checkpoint(
            folder, {.tag = "stage-" + std::to_string(stage), .trainable_only = true});
        const std::vector<float> at_save = means_of(engine);
        step(runtime, engine);  // changes the buffers while the save may still be running
        CHECK(saved.wait());
        const std::uint64_t digest = engine.digest();
        if (!runtime.is_root()) return;
        if (stage == 0) expected = digest, means = at_save;
        CHECK(digest == expected);
        CHECK(at_save == means);
      });
    for (const int stage : {0, 1, 2, 3})
      zero::testing::run_ranks(3, [&](Runtime& runtime) {
        Engine engine(runtime, adapted_model(), config_of(stage));
        const std::string tag = "stage-" + std::to_string(3 - stage);
        CHECK(contains(
            refusal<zero::LoadError>([&] { engine.resume(folder, zero::Resume::must_exist, tag); }),
            "l0.w has no values"));
        load_base(engine, directory / "base");
        engine.resume(folder, zero::Resume::must_exist, tag);
        CHECK(means_of(engine) == means);  // rank 0's values, on every rank
        CHECK(*engine.buffer<std::int64_t>("head.batches") == 2 * engine.batch().accumulation);
        step(runtime, engine);
        const std::uint64_t digest = engine.digest();
        if (runtime.is_root()) CHECK(digest == expected);
      });
  }
  std::int64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory / "at-once" + "/stage-3"))
    if (file.path().extension() == ".safetensors")
      bytes += static_cast<std::int64_t>(file.file_size());
  CHECK(bytes < layers * width * width * 4);  // less than the base alone
}

TEST_CASE("a checkpoint without its frozen parameters refuses another base") {
  const TemporaryDirectory directory;
  for (const bool same : {true, false})
    zero::testing::run_ranks(2, [&](Runtime& runtime) {
      Engine engine(runtime, adapted_model(), config_of(2));
      engine.initialize([&](zero::ParamShard shard) {
        fill(shard);
        if (!same && shard.name == "l2.w" && shard.begin == 0) shard.values[0] += 1e-6f;
      });
      if (same) {
        engine.save_checkpoint(directory / "a", {.trainable_only = true}).wait();
        engine.resume(directory / "a");
      } else {
        CHECK(contains(refusal<zero::LoadError>([&] { engine.resume(directory / "a"); }),
                       "other values of the frozen parameter l2.w"));
      }
    });
}

// Rewrites the manifest like that of a converter whose source names no frozen parameters.
void forget_base(const TemporaryDirectory& directory, const std::string& checkpoint) {
  const std::string file = checkpoint + "/manifest.json";
  zero::checkpoint::Manifest manifest =
      zero::checkpoint::parse_manifest(file, zero::tests::read_text(directory / file));
  std::erase_if(manifest.parameters, [](const auto& p) { return p.left_out.has_value(); });
  manifest.without_frozen = true;
  const std::string text = zero::checkpoint::format_manifest(manifest);
  directory.file(file, text);
  directory.file(checkpoint + "/manifest.xxh3", zero::checkpoint::format_manifest_digest(text));
}

TEST_CASE("a checkpoint that names no frozen parameters resumes over the loaded base") {
  const TemporaryDirectory directory;
  const std::string folder = directory / "a";
  std::uint64_t expected = 0;
  zero::testing::run_ranks(2, [&](Runtime& runtime) {
    Engine engine(runtime, adapted_model(), config_of(2));
    engine.initialize(fill);
    step(runtime, engine);
    engine.save_checkpoint(folder, {.tag = "s", .trainable_only = true}).wait();
    step(runtime, engine);
    const std::uint64_t digest = engine.digest();
    if (runtime.is_root()) expected = digest;
  });
  forget_base(directory, "a/s");
  for (const int stage : {0, 1, 2, 3})
    zero::testing::run_ranks(2, [&](Runtime& runtime) {
      Engine engine(runtime, adapted_model(), config_of(stage));
      CHECK(
          contains(refusal<zero::LoadError>([&] { engine.resume(folder); }), "l0.w has no values"));
      engine.initialize(fill);
      engine.resume(folder);
      step(runtime, engine);
      const std::uint64_t digest = engine.digest();
      if (runtime.is_root()) CHECK(digest == expected);
    });
  // Trained parameters must be present.
  zero::testing::run_ranks(2, [&](Runtime& runtime) {
    zero::ModelSpec more = adapted_model();
    more.unit("more").param("c", {4});
    Engine engine(runtime, more, config_of(2));
    engine.initialize(fill);
    CHECK(contains(refusal<zero::LoadError>([&] { engine.resume(folder); }),
                   "more.c is in the model, not in the checkpoint"));
  });
}

TEST_CASE("a buffer of another precision is converted") {
  const auto model_of = [](zero::DType dtype) {
    zero::ModelSpec model;
    model.unit("u").param("p", {5}).buffer("mean", {3}, dtype);
    return model;
  };
  const TemporaryDirectory directory;
  zero::testing::run_ranks(2, [&](Runtime& runtime) {
    Engine engine(runtime, model_of(zero::DType::fp32), config_of(2));
    engine.initialize(fill);
    std::fill_n(engine.buffer<float>("u.mean"), 3, 1.25f);
    engine.save_checkpoint(directory / "fp32").wait();
    Engine narrow(runtime, model_of(zero::DType::bf16), config_of(2));
    narrow.resume(directory / "fp32");
    CHECK(narrow.buffer<zero::bf16>("u.mean")[2].bits == 0x3fa0);
    narrow.save_checkpoint(directory / "bf16").wait();
    Engine wide(runtime, model_of(zero::DType::fp32), config_of(2));
    wide.resume(directory / "bf16");
    CHECK(wide.buffer<float>("u.mean")[2] == 1.25f);
    Engine counts(runtime, model_of(zero::DType::int64), config_of(2));
    CHECK(contains(refusal<zero::LoadError>([&] { counts.resume(directory / "fp32"); }),
                   "the buffer u.mean has dtype F32, the model's I64"));
  });
}

TEST_CASE("buffers of any type, and further names, are saved, exported and loaded") {
  zero::ModelSpec model;
  zero::UnitSpec& unit = model.unit("u").param("p", {5}).buffer("mask", {3, 1}, "BOOL");
  unit.buffer("one", {}, "F64").buffer("none", {0}, "C64").buffer("code", {5}, "F8_E4M3");
  unit.also_named("u.p", {"head.p"}).also_named("u.mask", {"head.mask", "tail.mask"});
  CHECK(contains(refusal<zero::UsageError>([&] { unit.buffer("q", {2}, "F4"); }), "whole bytes"));
  CHECK(contains(refusal<zero::UsageError>([&] { unit.also_named("u.p", {"tail.mask"}); }),
                 "declared twice"));
  CHECK(contains(refusal<zero::UsageError>([&] { unit.also_named("u.x", {"y"}); }), "u.x"));
  const TemporaryDirectory directory;
  const auto set = [](Engine& engine, int value) {
    for (const char* name : {"u.mask", "u.one", "u.code"})
      std::ranges::fill(engine.buffer_bytes(name), static_cast<std::byte>(value));
  };
  for (const int stage : {0, 2, 3})
    zero::testing::run_ranks(2, [&](Runtime& runtime) {
      Engine engine(runtime, model, config_of(stage));
      engine.initialize(fill);
      set(engine, 1);
      engine.save_checkpoint(directory / "a", {.replace = true}).wait();
      engine.export_model(directory / "model");
      const auto loaded = [&] {
        bool all = engine.buffer_bytes("u.none").empty();
        for (const char* name : {"u.mask", "u.one", "u.code"})
          for (const std::byte value : engine.buffer_bytes(name))
            all = all && value == std::byte{1};
        return all && engine.buffer_bytes("u.mask").size() == 3 &&
               engine.buffer_bytes("u.one").size() == 8;
      };
      set(engine, 0);
      engine.resume(directory / "a");
      CHECK(loaded());
      set(engine, 0);
      engine.load_weights(directory / "model");
      CHECK(loaded());
    });
  const zero::checkpoint::ModelReader reader(directory / "model");
  CHECK(reader.tensor_count() == 8);
  CHECK(reader.find("tail.mask")->dtype == "BOOL");
  CHECK(reader.find("head.p")->shape == std::vector<std::int64_t>{5});
  CHECK(reader.find("u.none")->shape == std::vector<std::int64_t>{0});
}

TEST_CASE("a path that is empty, and weights of another shape") {
  const TemporaryDirectory directory;
  zero::testing::run_ranks(2, [&](Runtime& runtime) {
    Engine engine(runtime, base_model(), config_of(2));
    engine.initialize(fill);
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { engine.save_checkpoint(""); }, [&] { engine.open_checkpoints(""); },
             [&] { engine.resume(""); }, [&] { engine.export_model(""); },
             [&] { engine.load_weights(""); }})
      CHECK(contains(refusal<zero::UsageError>(call), "an empty path"));
    engine.export_model(directory / "model");
    zero::ModelSpec other;
    for (int l = 0; l < layers; ++l)
      other.unit("l" + std::to_string(l))
          .param("w", {width, l == 0 ? 3 : width})
          .buffer("mean", {width});
    Engine changed(runtime, other, config_of(2));
    CHECK(contains(refusal<zero::LoadError>([&] { changed.load_weights(directory / "model"); }),
                   "l0.w has shape"));
    CHECK(changed.load_weights(directory / "model", {.allow_missing = "l0.*"}) ==
          std::vector<std::string>{"l0.w"});
  });
}

TEST_CASE("an export of only the trained parameters is an adapter's file") {
  const TemporaryDirectory directory;
  zero::testing::run_ranks(2, [&](Runtime& runtime) {
    Engine engine(runtime, adapted_model(), config_of(3));
    engine.initialize(fill);
    engine.export_model(directory / "adapter", {.trainable_only = true});
  });
  const zero::checkpoint::ModelReader reader(directory / "adapter");
  CHECK(reader.find("l1.a") != nullptr);
  CHECK(reader.find("l1.mean") != nullptr);
  CHECK(reader.find("head.batches")->dtype == "I64");
  CHECK(reader.find("l1.w") == nullptr);
  CHECK(reader.tensor_count() == 2 * layers + 1 + layers + 1);
}

TEST_CASE("ranks keep state of their own in a checkpoint") {
  const TemporaryDirectory directory;
  const auto state_of = [](int rank) {
    return rank == 1 ? std::string() : std::string("\0\xff of rank ", 10) + std::to_string(rank);
  };
  zero::testing::run_ranks(3, [&](Runtime& runtime) {
    Engine engine(runtime, adapted_model(), config_of(1));
    engine.initialize(fill);
    engine.save_checkpoint(directory / "a", {.rank_state = state_of(runtime.rank())}).wait();
    CHECK(contains(refusal<zero::UsageError>([&] {
                     const std::size_t bytes = runtime.rank() == 2 ? (1 << 20) + 1 : 0;
                     engine.save_checkpoint(directory / "a",
                                            {.tag = "big", .rank_state = std::string(bytes, 'x')});
                   }),
                   "1048577 bytes"));
  });
  for (const int ranks : {1, 3})
    zero::testing::run_ranks(ranks, [&](Runtime& runtime) {
      Engine engine(runtime, adapted_model(), config_of(3));
      const auto resumed = engine.resume(directory / "a");
      CHECK(resumed->rank_states ==
            std::vector<std::string>{state_of(0), state_of(1), state_of(2)});
    });
}

TEST_CASE("buffers that do not fit are named") {
  zero::testing::run_ranks(1, [](Runtime& runtime) {
    Engine engine(runtime, adapted_model(), config_of(0));
    CHECK(contains(refusal<zero::UsageError>([&] { engine.buffer<float>("l0.meen"); }),
                   "did you mean \"l0.mean\"?"));
    CHECK(contains(refusal<zero::UsageError>([&] { engine.buffer<std::int64_t>("l0.mean"); }),
                   "l0.mean is fp32, but int64"));
  });
  zero::ModelSpec model;
  model.unit("u").param("p", {3}).buffer("q", {3});
  CHECK(
      contains(refusal<zero::UsageError>([&] { model.unit("v").buffer("q", {1}).param("q", {1}); }),
               "\"v.q\" is declared twice"));
  const TemporaryDirectory directory;
  zero::testing::run_ranks(2, [&](Runtime& runtime) {
    Engine engine(runtime, base_model(), config_of(1));
    engine.initialize(fill);
    engine.save_checkpoint(directory / "a").wait();
  });
  zero::testing::run_ranks(2, [&](Runtime& runtime) {
    zero::ModelSpec without;
    for (int l = 0; l < layers; ++l)
      without.unit("l" + std::to_string(l)).param("w", {width, width}).buffer("var", {width});
    Engine engine(runtime, without, config_of(1));
    const std::string problem = refusal<zero::LoadError>([&] { engine.resume(directory / "a"); });
    CHECK(contains(problem, "l0.mean is in the checkpoint, not in the model"));
    CHECK(contains(problem, "the buffer l0.var is in the model, not in the checkpoint"));
  });
}

TEST_CASE("values of the program are summed in rank order, and broadcast") {
  for (const int ranks : {1, 2, 3, 4})
    zero::testing::run_ranks(ranks, [&](Runtime& runtime) {
      std::vector<double> wide(100'000);
      std::vector<float> narrow(1001);
      std::vector<std::int64_t> counts(5, runtime.rank() + 1);
      const auto value = [](int rank, std::size_t i) {
        return 1.0 / static_cast<double>(3 + rank * 7 + static_cast<int>(i % 11));
      };
      for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = value(runtime.rank(), i);
      for (std::size_t i = 0; i < narrow.size(); ++i)
        narrow[i] = static_cast<float>(value(runtime.rank(), i));
      runtime.sum(wide);
      runtime.sum(narrow);
      runtime.sum(counts);
      for (const std::size_t i : {std::size_t{0}, std::size_t{65'536}, wide.size() - 1}) {
        double sum = 0;
        for (int r = 0; r < ranks; ++r) sum += value(r, i);
        CHECK(wide[i] == sum);
      }
      float sum = static_cast<float>(value(0, 1000));
      for (int r = 1; r < ranks; ++r) sum += static_cast<float>(value(r, 1000));
      CHECK(narrow[1000] == sum);
      CHECK(counts == std::vector<std::int64_t>(5, ranks * (ranks + 1) / 2));
      for (const std::size_t size : {0, 1, 8, 13}) {
        std::string text(size, runtime.rank() == ranks - 1 ? 'x' : '?');
        runtime.broadcast(std::as_writable_bytes(std::span(text)), ranks - 1);
        CHECK(text == std::string(size, 'x'));
      }
      CHECK(contains(refusal<zero::UsageError>([&] { runtime.broadcast({}, ranks); }),
                     "there is no rank"));
    });
}
