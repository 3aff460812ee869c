// Whole weights that leave an engine piece by piece: the same at every strategy and home, in a
// buffer of the given size, on one rank or on all.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "optim/gradient_norm.h"
#include "tests/support/hybrid_rows.h"
#include "tests/support/refusal.h"
#include "tests/support/stage_rows.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_ranks.h"
#include "zero/base/hash.h"

namespace {

using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

constexpr toy::Dims dims;
constexpr int ranks = 4;

using Values = std::vector<std::byte>;

std::vector<zero::tests::ConfigRow> rows(const TemporaryDirectory& folder) {
  std::vector<zero::tests::ConfigRow> rows = zero::tests::stage_rows();
  for (const hybrid::Row& row : hybrid::rows)
    rows.push_back({row.name, [&row](zero::Config& c) { c = hybrid::in_groups(c, row, 2); }});
  rows.push_back({"parameters in a file", [&folder](zero::Config& c) {
                    c.zero_optimization.stage = 3;
                    c.zero_optimization.offload_param.device = zero::OffloadDevice::nvme;
                    c.zero_optimization.offload_param.nvme_path = folder.path();
                    c.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
                    c.zero_optimization.offload_optimizer.nvme_path = folder.path();
                  }});
  return rows;
}

// Returns what a rank gets, with the order of names; checks sizes, order and bounds of pieces.
std::map<std::string, Values> streamed(zero::Engine& engine, const zero::StreamOptions& options,
                                       std::vector<std::string>& order) {
  std::map<std::string, Values> all;
  engine.stream_weights(options, [&](const zero::WeightPiece& piece) {
    CHECK(std::ssize(piece.values) <= options.budget);
    Values& values = all[std::string(piece.name)];
    if (values.empty()) order.emplace_back(piece.name);
    CHECK(std::ssize(values) == piece.begin * zero::size_of(piece.dtype));
    values.insert(values.end(), piece.values.begin(), piece.values.end());
  });
  return all;
}

// The same by Engine::read().
Values read(zero::Engine& engine, const std::string& name, std::int64_t bytes) {
  const zero::DType dtype = engine.compute_dtype();
  std::vector<float> wide(bytes / zero::size_of(dtype));
  engine.read(name, "value", wide);
  Values values(bytes);
  zero::optim::cast(wide.data(), zero::DType::fp32, values.data(), dtype, std::ssize(wide));
  return values;
}

std::int64_t bytes_of_communication(zero::Engine& engine) {
  for (const zero::MemoryUse& use : engine.rank_report().memory)
    if (use.category == "communication") return use.current;
  return 0;
}

TEST_CASE("streams of weights are whole and equal at every strategy") {
  const TemporaryDirectory folder;
  for (const bool bf16 : {false, true})
    for (const zero::tests::ConfigRow& row : rows(folder)) {
      CAPTURE(row.name);
      CAPTURE(bf16);
      zero::Config config = toy::config(0, dims);
      config.bf16_enabled = bf16;
      row.change(config);
      zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, toy::describe(dims), config);
        engine.initialize(toy::fill);
        std::vector<std::string> order, again;
        const std::int64_t before = bytes_of_communication(engine);
        const auto all = streamed(engine, {.budget = 1 << 20}, order);
        CHECK(order.front() == "embed.wte");
        CHECK(order.back() == "head.gain");
        CHECK(all.size() == 2 + 4 * static_cast<std::size_t>(dims.blocks) + 1);
        for (const auto& [name, values] : all)
          CHECK(values == read(engine, name, std::ssize(values)));
        for (const int receiver : {-1, 0, 3}) {
          // The budget cuts the large parameters.
          const auto part = streamed(engine, {.budget = 100, .only_rank = receiver}, again);
          const bool receives = receiver < 0 || receiver == runtime.rank();
          CHECK(part == (receives ? all : std::map<std::string, Values>()));
        }
        CHECK(bytes_of_communication(engine) == before);
        const auto trained = streamed(engine, {.trainable_only = true}, again);
        CHECK(trained.size() == all.size() - dims.blocks);
      });
    }
}

TEST_CASE("streams refuse what they cannot do") {
  zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
    zero::Config config = toy::config(3, dims);
    zero::Engine engine(runtime, toy::describe(dims), config);
    const auto nothing = [](const zero::WeightPiece&) {};
    CHECK(contains(refusal<zero::UsageError>([&] { engine.stream_weights({}, nothing); }),
                   "no values to stream"));
    engine.initialize(toy::fill);
    CHECK(
        contains(refusal<zero::UsageError>([&] { engine.stream_weights({.budget = 7}, nothing); }),
                 "a budget of 7 bytes; expected at least 8"));
    CHECK(contains(
        refusal<zero::UsageError>([&] { engine.stream_weights({.only_rank = 2}, nothing); }),
        "to rank 2: there are 2 ranks"));
    Values values(4);
    CHECK(contains(refusal<zero::UsageError>([&] { engine.gather("head.gain", values); }),
                   "expected 72 bytes on this rank, not 4"));
    CHECK(contains(refusal<zero::UsageError>([&] { engine.gather("nobody", values); }),
                   "no parameter is named"));
  });
}

// Changes.

struct Draw {
  const char* optimizer;
  int precision, row, ranks;
};

zero::Config config_of(const Draw& draw, const std::vector<zero::tests::ConfigRow>& rows) {
  zero::Config config =
      draw.precision == 2 ? toy::overflowing_config(0, dims) : toy::config(0, dims);
  config.bf16_enabled = draw.precision == 1 || draw.precision == 3;
  config.bf16_master_weights_and_grads = draw.precision == 3;
  config.optimizer = zero::optim::default_options(draw.optimizer);
  config.optimizer.learning_rate = 1e-3;
  config.optimizer.weight_decay = 0.1;
  rows[draw.row].change(config);
  return config;
}

using Bits = std::map<std::string, Values>;

Bits all_of(zero::Engine& engine) {
  std::vector<std::string> order;
  return streamed(engine, {}, order);
}

// Applies a stream of changes: each element must differ from the value before.
void apply(zero::Engine& engine, std::optional<std::uint64_t>& since, Bits& copy,
           const Bits& expected) {
  zero::ChangeStream stream = engine.changes(since, {.budget = 1 << 16});
  REQUIRE(stream.since() == since);
  while (stream.next([&](const zero::ChangedValues& changed) {
    const std::int64_t width = zero::size_of(changed.dtype);
    Values& values = copy.at(std::string(changed.name));
    for (std::size_t i = 0; i < changed.elements.size(); ++i) {
      std::byte* own = &values.at(changed.elements[i] * width);
      const std::byte* given = &changed.values[i * width];
      CHECK(std::memcmp(own, given, width) != 0);
      std::memcpy(own, given, width);
    }
  })) {
  }
  CHECK(copy == expected);
  since = stream.digest();
}

template <class T>
bool take_step(zero::Engine& engine, toy::Activations& activations) {
  const std::int64_t base = engine.step_count() * engine.batch().global;
  for (zero::MicroStep micro : engine.micro_steps()) {
    toy::load_samples(dims, activations, base + micro.number() * dims.batch);
    micro.loss(toy::micro_step<T>(engine, dims, activations, micro.loss_scale()));
  }
  return engine.step().wait().skipped;
}

template <class T>
void follow(zero::Runtime& runtime, const zero::Config& config) {
  zero::Engine engine(runtime, toy::describe(dims), config);
  engine.initialize(toy::fill);
  toy::Activations activations = toy::make_activations(dims);
  CHECK(!engine.changes({}).since());
  std::optional<std::uint64_t> since = engine.changes({}).digest();
  Bits copy = all_of(engine);
  int skips = 0;
  for (int step = 0; step < 4; ++step) {
    const Bits before = copy;
    const bool skipped = take_step<T>(engine, activations);
    skips += skipped;
    const Bits now = all_of(engine);
    CHECK((now == before) == skipped);
    apply(engine, since, copy, now);
  }
  CHECK((skips > 0) == config.fp16_enabled);
  // Values that are written, of which some stay; and those of a frozen parameter.
  for (const char* name : {"block.1.weight", "block.2.frozen"}) {
    std::vector<float> values(copy.at(name).size() / zero::size_of(engine.compute_dtype()));
    engine.read(name, "value", values);
    values[1] += 1;
    values.back() = -3;
    engine.write(name, values);
  }
  apply(engine, since, copy, all_of(engine));
  engine.initialize([](zero::ParamShard shard) { std::ranges::fill(shard.values, 0.25f); });
  apply(engine, since, copy, all_of(engine));
  // A stream that was lost, and one of an engine that has begun anew.
  CHECK(!engine.changes(*since + 1).since());
  CHECK(engine.changes(since).since());
}

void follow(const Draw& draw) {
  const TemporaryDirectory folder;
  const auto all = rows(folder);
  CAPTURE(draw.optimizer);
  CAPTURE(draw.precision);
  CAPTURE(all[draw.row].name);
  const zero::Config config = config_of(draw, all);
  zero::testing::run_ranks(draw.ranks, [&](zero::Runtime& runtime) {
    if (config.fp16_enabled) return follow<zero::fp16>(runtime, config);
    if (config.bf16_enabled) return follow<zero::bf16>(runtime, config);
    follow<float>(runtime, config);
  });
}

constexpr const char* optimizers[] = {"AdamW", "SGD",  "Lion",      "Adagrad",
                                      "Lamb",  "Muon", "Adafactor", "Adam"};

TEST_CASE("streams of changes have the changed elements and no others") {
  for (const Draw& draw :
       {Draw{"AdamW", 1, 3, 4}, Draw{"Muon", 1, 2, 3}, Draw{"SGD", 0, 0, 2}, Draw{"Lamb", 2, 4, 4},
        Draw{"Adafactor", 3, 3, 3}, Draw{"Lion", 1, 9, 2}, Draw{"AdamW", 1, 5, 4}})
    follow(draw);
}

std::int64_t staging_of(const std::vector<zero::MemoryUse>& uses) {
  for (const zero::MemoryUse& use : uses)
    if (use.category == "update_staging") return use.planned;
  return 0;
}

TEST_CASE("the bits of changes are in the plan of memory, a bit for each element") {
  for (const int stage : {0, 3}) {
    CAPTURE(stage);
    zero::Config config = toy::config(stage, dims);
    const zero::ModelSpec model = toy::describe(dims);
    const std::int64_t without = staging_of(zero::plan_memory(model, config, ranks, false).memory);
    config.zero_core.track_changes = true;
    const std::int64_t with = staging_of(zero::plan_memory(model, config, ranks, false).memory);
    const std::int64_t channels = dims.channels;
    const std::int64_t trained = dims.vocabulary * channels + 7 + channels +
                                 dims.blocks * (channels * channels + 2 * channels);
    const std::int64_t bits = trained / 8 / (stage == 0 ? 1 : ranks);
    CHECK(with - without >= bits);
    CHECK(with - without <= bits + 512 * 2 * (dims.blocks + 2));  // segments are padded
    zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, model, config);
      engine.initialize(toy::fill);
      const auto before = engine.rank_report().memory;
      if (runtime.is_root()) CHECK(staging_of(before) == with);
      static_cast<void>(engine.changes({}));
      CHECK(staging_of(engine.rank_report().memory) == staging_of(before));
    });
  }
}

TEST_CASE("streams of changes at any settings" * doctest::skip()) {
  std::uint64_t seed = 1;
  const auto dice = [&](std::uint64_t sides) {
    seed = zero::mixed(seed);
    return static_cast<int>(seed % sides);
  };
  int tried = 0;
  while (tried < 50) {
    const Draw draw{optimizers[dice(8)], dice(4), dice(10), 1 + dice(4)};
    const bool in_groups = draw.row >= 5 && draw.row < 9;
    const std::string type = draw.optimizer;
    if (in_groups && draw.ranks != 4) continue;
    if (draw.row == 9 && (type == "Lamb" || type == "Muon" || type == "Adafactor")) continue;
    follow(draw);
    ++tried;
  }
}

}  // namespace
