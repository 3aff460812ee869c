// The table of arrays: memory that units keep from forward to backward, and rows in an encoding
// with scales.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/support/mock_ranks.h"
#include "tests/support/planned_bytes.h"
#include "tests/support/refusal.h"
#include "tests/support/stage_rows.h"
#include "tests/support/temporary_directory.h"
#include "zero/engine/memory_plan.h"
#include "zero/plan/array_table.h"
#include "zero/plan/offload_moves.h"

namespace {

using zero::MemoryCategory;
using zero::tests::contains;
using zero::tests::refusal;

constexpr int micro = 3, width = 5, masked = 7;

zero::Config config_of(const zero::tests::ConfigRow& row) {
  zero::Config config;
  row.change(config);
  config.batch.train_micro_batch_size_per_gpu = micro;
  config.batch.gradient_accumulation_steps = 2;
  return config;
}

// The unit in the middle runs twice in a pass; the first one is frozen, so that no backward scope
// ends its use.
zero::ModelSpec describe() {
  zero::ModelSpec model;
  model.unit("first").param("weight", {width}, {.trainable = false}).keep("x", {width});
  model.unit("middle")
      .param("weight", {width})
      .keep("x", {width, 2}, zero::DType::fp32)
      .keep("mask", {masked}, zero::DType::uint8);
  model.unit("other").param("weight", {width}).keep("x", {width});
  model.again("middle");
  model.unit("head").param("weight", {width}).keep("x", {width}).fused();
  return model;
}

template <class T>
std::span<T> whole(T* data, int per_sample) {
  return {data, static_cast<std::size_t>(micro * per_sample)};
}

// Fills a unit's arrays with a number.
void fill(const zero::Scope& scope, const std::string& unit, int number) {
  std::ranges::fill(whole(scope.kept<float>("x"), unit == "middle" ? 2 * width : width),
                    static_cast<float>(number));
  if (unit == "middle")
    std::ranges::fill(whole(scope.kept<std::uint8_t>("mask"), masked),
                      static_cast<std::uint8_t>(number));
}

bool has(const zero::Scope& scope, const std::string& unit, int number) {
  const auto is = [number](auto value) { return static_cast<int>(value) == number; };
  return std::ranges::all_of(whole(scope.kept<float>("x"), unit == "middle" ? 2 * width : width),
                             is) &&
         (unit != "middle" ||
          std::ranges::all_of(whole(scope.kept<std::uint8_t>("mask"), masked), is));
}

void train(zero::Engine& engine) {
  const std::vector<std::string> order{"first", "middle", "other", "middle"};
  int number = 0;
  for (int step = 0; step < 2; ++step) {
    for (zero::MicroStep at : engine.micro_steps()) {
      const int before = number;
      for (const std::string& unit : order) fill(engine.unit(unit).forward(), unit, ++number);
      {
        auto scope = engine.unit("head").backward();
        std::ranges::fill(whole(scope.kept<float>("x"), width), 1.f);
        scope.grad<float>("weight")[0] += 1;
      }
      at.loss(1);
      for (int i = 3; i > 0; --i) {
        auto scope = engine.unit(order[static_cast<std::size_t>(i)]).backward();
        CHECK(has(scope, order[static_cast<std::size_t>(i)], before + i + 1));
        scope.grad<float>("weight")[0] += 1;
      }
    }
    engine.step().wait();
    zero::Evaluation evaluation = engine.evaluate();
    while (evaluation.next(number++ % 3 == 0)) {
      for (const std::string& unit : order) fill(engine.unit(unit).forward(), unit, 99);
      fill(engine.unit("head").forward(), "head", 99);
    }
  }
}

}  // namespace

TEST_CASE("what forward keeps is there in backward, use by use, at all stages") {
  for (const int ranks : {1, 2, 3})
    for (const zero::tests::ConfigRow& row : zero::tests::stage_rows()) {
      CAPTURE(ranks);
      CAPTURE(std::string(row.name));
      zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, describe(), config_of(row));
        engine.initialize([](zero::ParamShard shard) { std::ranges::fill(shard.values, 1.f); });
        train(engine);
        // Three arrays of floats, two for each use of the unit that runs twice.
        CHECK(
            zero::tests::planned(zero::plan_memory(describe(), config_of(row), ranks, false).memory,
                                 "activations") == 7 * 256);
        CHECK(runtime.core().ledger().account(MemoryCategory::activations).current == 7 * 256);
      });
    }
}

TEST_CASE("a unit keeps its arrays on a GPU") {
  mock::run_ranks(2, mock::Order::in_turn, 1, [](zero::Runtime& runtime) {
    zero::Engine engine(runtime, describe(), config_of(zero::tests::stage_rows()[3]));
    engine.initialize([](zero::ParamShard shard) { std::ranges::fill(shard.values, 1.f); });
    train(engine);
    CHECK(runtime.core().ledger().account(MemoryCategory::activations).current == 7 * 256);
  });
}

TEST_CASE("kept arrays are asked for as declared") {
  zero::testing::run_ranks(1, [](zero::Runtime& runtime) {
    zero::Engine engine(runtime, describe(), config_of(zero::tests::stage_rows()[0]));
    engine.initialize([](zero::ParamShard shard) { std::ranges::fill(shard.values, 1.f); });
    for (zero::MicroStep at : engine.micro_steps()) {
      at.loss(1);
      const auto scope = engine.unit("first").forward();
      CHECK(contains(refusal<zero::UsageError>([&] { (void)scope.kept<float>("y"); }),
                     "unit first keeps no array \"y\""));
      CHECK(contains(refusal<zero::UsageError>([&] { (void)scope.kept<zero::bf16>("x"); }),
                     "is fp32, but bf16"));
      CHECK(contains(refusal<zero::UsageError>([&] { (void)scope.kept<std::uint8_t>("x"); }),
                     "is fp32, but uint8"));
      break;
    }
  });
  zero::ModelSpec model;
  zero::UnitSpec& unit = model.unit("u").param("weight", {1}).keep("x", {2});
  CHECK(contains(refusal<zero::UsageError>([&] { unit.keep("x", {3}); }), "declared twice"));
  CHECK(contains(refusal<zero::UsageError>([&] { unit.keep("y", {-1}); }), "negative extent"));
  model.learn_order();
  const zero::Config config = config_of(zero::tests::stage_rows()[0]);
  CHECK(
      contains(refusal<zero::UsageError>([&] { (void)zero::plan_memory(model, config, 1, false); }),
               "learns its order"));
}

// Rows of states as codes with scales: the arena, the slots of offload, the file and the planned
// transfers follow the rows alone.
TEST_CASE("an encoding with scales changes rows, and all bytes follow") {
  using namespace zero::detail;
  const zero::tests::TemporaryDirectory directory;
  zero::ModelSpec model;
  for (const char* name : {"a", "b"}) model.unit(name).param("weight", {4096});
  zero::Config config;
  config.batch.train_micro_batch_size_per_gpu = 1;
  config.zero_optimization.stage = 1;
  for (const bool in_file : {false, true}) {
    if (in_file) {
      config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
      config.zero_optimization.offload_optimizer.nvme_path = directory.path();
    }
    EnginePlan plan(model.declared(), config, {0, 1});
    const auto bytes = [&] {
      const zero::MemoryPlan memory = memory_of(plan, config);
      return zero::tests::planned(in_file ? memory.in_file : memory.memory, "optimizer_state");
    };
    const auto moved = [&] { return moved_bytes(plan, Op::load, 0); };
    const std::int64_t before = bytes(), before_moved = moved();
    const auto encode = [](std::vector<ArrayRow>& rows) {
      for (ArrayRow& row : rows)
        if (row.id.kind == ArrayKind::state)
          row.encoding.codec = zero::comm::wire::Codec(zero::comm::wire::Format::int8, 256);
    };
    encode(plan.arrays.pools[Pool::optimizer].rows);
    std::ranges::for_each(plan.arrays.of_chunk, encode);
    // Two states of two units: codes of a byte, and 16 scales in fp32.
    constexpr std::int64_t codes = 4096 + 64, page = 4096;
    CHECK(before == 4 * 4096 * 4);
    CHECK(bytes() == 4 * (in_file ? (codes + page - 1) / page * page : (codes + 255) / 256 * 256));
    if (in_file) CHECK(before_moved - moved() == 2 * (4096 * 4 - codes));
  }
}
