// Frozen parameters of bytes (a quantizer's codes): sharded, gathered with their unit, never
// reduced, and unchanged in checkpoints and files, at every stage and number of ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/mock_ranks.h"
#include "tests/support/planned_bytes.h"
#include "tests/support/refusal.h"
#include "tests/support/stage_rows.h"
#include "tests/support/temporary_directory.h"

namespace {

using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

constexpr int units = 3, codes = 5000, width = 4;

zero::ModelSpec describe(const std::string& file_dtype = "I8") {
  zero::ModelSpec model;
  for (int u = 0; u < units; ++u)
    model.unit("u" + std::to_string(u))
        .param("adapter", {width})
        .param("codes", {codes},
               {.trainable = false, .dtype = zero::DType::uint8, .file_dtype = file_dtype});
  return model;
}

zero::Config config_of(const zero::tests::ConfigRow& row, bool bf16 = false) {
  zero::Config config;
  row.change(config);
  config.batch.train_micro_batch_size_per_gpu = 1;
  config.batch.gradient_accumulation_steps = 2;
  config.bf16_enabled = bf16;
  return config;
}

std::uint8_t code(int unit, std::int64_t element) {
  return static_cast<std::uint8_t>(7 * element + 3 * unit + element / 251);
}

void initialize(zero::Engine& engine) {
  engine.initialize([](zero::ParamShard shard) {
    const int unit = shard.name[1] - '0';
    for (std::size_t i = 0; i < shard.values.size(); ++i)
      shard.values[i] = shard.name.ends_with("codes")
                            ? code(unit, shard.begin + static_cast<std::int64_t>(i))
                            : 0.5f;
  });
}

bool are_there(const zero::Scope& scope, int unit) {
  const std::uint8_t* values = scope.value<std::uint8_t>("codes");
  for (int i = 0; i < codes; ++i)
    if (values[i] != code(unit, i)) return false;
  return true;
}

template <class T>
void train(zero::Engine& engine, int steps) {
  for (int step = 0; step < steps; ++step) {
    for (zero::MicroStep micro : engine.micro_steps()) {
      for (int u = 0; u < units; ++u)
        CHECK(are_there(engine.units()[static_cast<std::size_t>(u)].forward(), u));
      micro.loss(1);
      for (int u = units; u-- > 0;) {
        auto scope = engine.units()[static_cast<std::size_t>(u)].backward();
        CHECK(are_there(scope, u));
        T* grad = scope.grad<T>("adapter");
        for (int i = 0; i < width; ++i)
          grad[i] = zero::from_float<T>(zero::to_float(grad[i]) + 0.25f);
      }
    }
    engine.step().wait();
  }
}

}  // namespace

TEST_CASE("bytes are sharded, gathered and unchanged, at all stages") {
  std::optional<std::uint64_t> expected;
  for (const int ranks : {1, 2, 3})
    for (const zero::tests::ConfigRow& row : zero::tests::stage_rows()) {
      CAPTURE(ranks);
      CAPTURE(std::string(row.name));
      zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, describe(), config_of(row));
        initialize(engine);
        train<float>(engine, 2);
        std::vector<float> whole(codes);
        engine.read("u1.codes", "value", whole);
        CHECK(whole[codes - 1] == static_cast<float>(code(1, codes - 1)));
        const std::uint64_t digest = engine.digest();
        if (runtime.is_root()) {
          if (!expected) expected = digest;
          CHECK(digest == *expected);
        }
      });
    }
}

TEST_CASE("a rank has its share of the bytes, and the slots") {
  const zero::tests::ConfigRow stage3 = zero::tests::stage_rows()[3];
  const auto bytes = [&](int ranks, const char* category) {
    return zero::tests::planned(
        zero::plan_memory(describe(), config_of(stage3), ranks, false).memory, category);
  };
  // Slices of a multiple of 128 bytes; memory in multiples of 256.
  const auto rounded = [](std::int64_t count, std::int64_t to) {
    return (count + to - 1) / to * to;
  };
  for (const int ranks : {2, 3, 4}) {
    const std::int64_t slice = rounded((codes + ranks - 1) / ranks, 128);
    const std::int64_t adapter = rounded(128 * 4, 256);
    CHECK(bytes(ranks, "parameters") == units * (rounded(slice, 256) + adapter));
    CHECK(bytes(ranks, "parameter_slots") == 2 * rounded(slice * ranks + ranks * 128 * 4, 256));
  }
}

TEST_CASE("bytes on a GPU are gathered too") {
  mock::run_ranks(2, mock::Order::random, 5, [](zero::Runtime& runtime) {
    zero::Engine engine(runtime, describe(), config_of(zero::tests::stage_rows()[3], true));
    initialize(engine);
    for (zero::MicroStep micro : engine.micro_steps()) {
      for (zero::Unit& unit : engine.units()) {
        auto scope = unit.forward();
        runtime.core().compute().synchronize();
        CHECK(are_there(scope, unit.index()));
      }
      micro.loss(1);
      for (int u = units; u-- > 0;) (void)engine.units()[static_cast<std::size_t>(u)].backward();
    }
    engine.step().wait();
  });
}

TEST_CASE("checkpoints of bytes load at any number of ranks, and files have their type") {
  const TemporaryDirectory directory;
  const std::vector<zero::tests::ConfigRow> rows = zero::tests::stage_rows();
  std::uint64_t saved = 0;
  zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, describe(), config_of(rows[3]));
    initialize(engine);
    train<float>(engine, 1);
    engine.save_checkpoint(directory.path().string()).wait();
    engine.export_model(directory.path().string() + "/model");
    const std::uint64_t digest = engine.digest();
    if (runtime.is_root()) saved = digest;
  });
  zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
    for (const int stage : {0, 2, 3}) {
      zero::Engine engine(runtime, describe(), config_of(rows[static_cast<std::size_t>(stage)]));
      CHECK(engine.resume(directory.path().string()));
      CHECK(engine.digest() == saved);
      zero::Engine loaded(runtime, describe(), config_of(rows[static_cast<std::size_t>(stage)]));
      loaded.load_weights(directory.path().string() + "/model");
      train<float>(loaded, 1);
    }
    zero::Engine other(runtime, describe("F8_E4M3"), config_of(rows[3]));
    CHECK(contains(
        refusal<zero::LoadError>([&] { other.load_weights(directory.path().string() + "/model"); }),
        "u0.codes has dtype I8, the model has F8_E4M3"));
    CHECK(contains(refusal<zero::LoadError>([&] { (void)other.resume(directory.path().string()); }),
                   "parameter u0.codes has dtype I8, the model's F8_E4M3"));
  });
}

TEST_CASE("bytes are declared frozen, with a type of a byte") {
  zero::ModelSpec model;
  zero::UnitSpec& unit = model.unit("u");
  CHECK(contains(
      refusal<zero::UsageError>([&] { unit.param("a", {1}, {.dtype = zero::DType::uint8}); }),
      "bytes are frozen"));
  CHECK(contains(refusal<zero::UsageError>(
                     [&] { unit.param("b", {1}, {.trainable = false, .file_dtype = "I8"}); }),
                 "with dtype uint8"));
  CHECK(contains(refusal<zero::UsageError>([&] {
                   unit.param(
                       "c", {1},
                       {.trainable = false, .dtype = zero::DType::uint8, .file_dtype = "I16"});
                 }),
                 "a name of safetensors for a byte"));
}
