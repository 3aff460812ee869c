// Equal bits at any number of ranks, with zero_core.rank_independent.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/layer_chain.h"
#include "tests/support/refusal.h"
#include "tests/support/stage_rows.h"
#include "tests/support/stderr_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/toy_ranks.h"

namespace {

using zero::tests::ConfigRow;
using zero::tests::stage_rows;

constexpr int micro_batches = 24;

zero::Config config_of(int stage, const toy::Dims& d = {}) {
  zero::Config config = toy::config(stage, d);
  config.batch = {micro_batches * d.batch, d.batch, 0};
  config.zero_core.rank_independent = true;
  return config;
}

std::vector<ConfigRow> precisions() {
  return {{"fp32", [](zero::Config&) {}},
          {"bf16", [](zero::Config& c) { c.bf16_enabled = true; }},
          {"fp16",
           [](zero::Config& c) {
             c.fp16_enabled = true;
             c.loss_scale.initial_scale_power = 22;  // the first steps overflow
             c.loss_scale.loss_scale_window = 2;
             c.loss_scale.hysteresis = 1;
           }},
          {"bf16, sent as fp16", [](zero::Config& c) {
             c.bf16_enabled = true;
             c.communication_data_type = zero::DType::fp16;
           }}};
}

std::vector<ConfigRow> optimizers() {
  const auto type = [](const char* name) {
    return [name](zero::Config& c) {
      c.optimizer = zero::optim::default_options(name);
      c.optimizer.learning_rate = 0.01;
      c.optimizer.weight_decay = 0.1;
    };
  };
  return {{"AdamW", type("AdamW")},
          {"Lamb", type("Lamb")},
          {"Muon", type("Muon")},
          {"Adafactor", type("Adafactor")}};
}

// Numbers of micro batches whose sum is rounded; the last is more than a step has.
constexpr std::int64_t groups[] = {1, 2, 3, 8, micro_batches, micro_batches + 1};

// The gradient of an element in a micro batch, of very different sizes.
float gradient_of(std::int64_t number, std::int64_t element) {
  const auto mixed = static_cast<std::uint32_t>(1 + number * 7919 + element * 104729) * 2654435761u;
  const float sign = (mixed >> 8 & 1) != 0 ? -1.f : 1.f;
  return sign * std::ldexp(1.f + static_cast<float>(mixed >> 9) / (1 << 23),
                           static_cast<int>(mixed & 15) - 8);
}

float unrounded(float value) {
  return value;
}

// Rounds to the nearest value with 8 significant bits; if two are as near, to the even one.
float rounded_to_bf16(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  bits += 0x7fffu + (bits >> 16 & 1);
  return std::bit_cast<float>(bits & 0xffff0000u);
}

// The formula of zero/plan/rank_independence.h, divided by the number of micro batches.
float formula(std::int64_t batches, std::int64_t group, float (*w)(float), std::int64_t element) {
  float gradient = 0;
  for (std::int64_t begin = 0; begin < batches; begin += group) {
    float sum = 0;
    for (std::int64_t b = begin; b < std::min(batches, begin + group); ++b) {
      const float own = w(gradient_of(b, element));
      sum = b == begin ? own : sum + own;
    }
    gradient = begin == 0 ? w(sum) : gradient + w(sum);
  }
  return gradient * (1.f / static_cast<float>(batches));
}

// Returns the gradient of a step of a parameter whose gradients are those of gradient_of().
std::vector<float> gradient_of_step(int ranks, const zero::Config& config, int elements) {
  std::vector<float> found(static_cast<std::size_t>(elements));
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    zero::ModelSpec model;
    model.unit("u").param("w", {elements});
    zero::Engine engine(runtime, model, config);
    engine.initialize(toy::fill);
    for (zero::MicroStep micro : engine.micro_steps()) {
      { auto scope = engine.unit("u").forward(); }
      auto scope = engine.unit("u").backward();
      float* const gradient = scope.grad<float>("w");
      for (int e = 0; e < elements; ++e) gradient[e] = gradient_of(micro.number(), e);
      micro.loss(0);
    }
    engine.step().wait();
    std::vector<float> own(found.size());
    engine.read_gradient("u.w", own);
    if (runtime.is_root()) found = own;
  });
  return found;
}

void compare(const zero::Config& config, const toy::Trace& expected, int ranks, int steps,
             const char* executor = "inline") {
  CAPTURE(ranks);
  const toy::Trace trace = toy::train_ranks(ranks, config, steps, executor);
  CHECK(trace.losses == expected.losses);
  CHECK(trace.norms == expected.norms);
  CHECK(trace.scales == expected.scales);
  CHECK(trace.digest == expected.digest);
}

// Compares every row on every number of ranks with stage 0 on one rank. Returns that run.
toy::Trace compare_all(const zero::Config& base, const std::vector<int>& ranks, int steps) {
  const toy::Trace expected = toy::train_ranks(1, base, steps);
  CHECK(expected.losses.size() == static_cast<std::size_t>(steps));
  CHECK(*std::ranges::min_element(expected.losses) < expected.losses.front());
  for (const ConfigRow& row : stage_rows()) {
    CAPTURE(row.name);
    zero::Config config = base;
    row.change(config);
    for (const int n : ranks) compare(config, expected, n, steps);
  }
  return expected;
}

// Continues a training run from its newest checkpoint, and saves the last step. Returns the losses.
// T is the dtype of parameters.
template <class T = float>
std::vector<double> train_part(const std::string& directory, int ranks, const zero::Config& config,
                               int until, std::uint64_t& digest, bool keeps_batch = true) {
  std::vector<double> losses;
  const toy::Dims d;
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    zero::Config kept = config;
    if (keeps_batch) zero::keep_batch(runtime, kept, directory);
    zero::Engine engine(runtime, toy::describe(d), kept);
    if (!engine.resume(directory, zero::Resume::if_any)) engine.initialize(toy::fill);
    toy::Activations a = toy::make_activations(d);
    while (engine.step_count() < until) {
      const std::int64_t first = engine.step_count() * engine.batch().global;
      for (zero::MicroStep micro : engine.micro_steps()) {
        toy::load_samples(d, a, first + micro.number() * d.batch);
        micro.loss(toy::micro_step<T>(engine, d, a, micro.loss_scale()));
      }
      const zero::StepResult result = engine.step().wait();
      if (runtime.is_root()) losses.push_back(result.loss);
    }
    engine.save_checkpoint(directory).wait();
    const std::uint64_t own = engine.digest();
    if (runtime.is_root()) digest = own;
  });
  return losses;
}

struct Free {
  std::vector<double> losses;
  std::uint64_t digest = 0;
  bool operator==(const Free&) const = default;
};

void free_pass(zero::Engine& engine, zero::MicroStep& micro, const std::vector<std::string>& calls,
               float input) {
  chain::Pass pass(
      engine, [](const std::function<void()>& kernel) { kernel(); }, true);
  micro.loss(*pass.forward(calls, input));
  pass.backward();
}

// A model with a free order of calls, of whose layers some micro batches skip one.
void with_free_model(int ranks, int stage,
                     const std::function<void(zero::Runtime&, zero::Engine&)>& use) {
  zero::Config config = toy::config(stage, {});
  config.batch = {7, 1, 0};
  config.zero_core.rank_independent = true;
  chain::Declaration declared;
  declared.optional = declared.free = true;
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, chain::describe(declared), config);
    engine.initialize(chain::fill);
    use(runtime, engine);
  });
}

Free train_free_model(int ranks, int stage) {
  Free found;
  with_free_model(ranks, stage, [&](zero::Runtime& runtime, zero::Engine& engine) {
    for (int step = 0; step < 4; ++step) {
      for (int number = runtime.rank(); number < 7; number += runtime.size()) {
        zero::MicroStep micro = engine.begin_micro_step();
        CHECK(micro.number() == number);
        std::vector<std::string> calls = {"a", "b", "c", "d"};
        if (number % 3 > 0) calls.erase(calls.begin() + (step + number) % 4);
        free_pass(engine, micro, calls, 0.1f * static_cast<float>(number + 7 * step));
      }
      const double loss = engine.step().wait().loss;
      if (runtime.is_root()) found.losses.push_back(loss);
    }
    const std::uint64_t digest = engine.digest();
    if (runtime.is_root()) found.digest = digest;
  });
  return found;
}

}  // namespace

TEST_CASE("rank independence: a model with a free order of calls") {
  const Free expected = train_free_model(1, 0);
  CHECK(expected.losses.back() < expected.losses.front());
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(ranks);
      CAPTURE(stage);
      CHECK(train_free_model(ranks, stage) == expected);
    }
}

TEST_CASE(
    "rank independence: calls for which ranks with other numbers of micro batches do not wait") {
  using zero::tests::contains;
  using zero::tests::refusal;
  for (const int stage : {0, 3})
    with_free_model(3, stage, [&](zero::Runtime&, zero::Engine& engine) {
      std::vector<float> values(chain::width);
      const auto read = [&] { engine.read("outer.scale", "value", values); };
      {
        zero::MicroStep micro = engine.begin_micro_step();
        free_pass(engine, micro, {"a", "b", "c", "d"}, 0.5f);
      }
      CHECK(contains(refusal<zero::UsageError>(read), "in micro batch 1 of the"));
      CHECK(contains(refusal<zero::UsageError>([&] { engine.drop_gradients(); }), "micro batch 1"));
      zero::MicroStep micro = engine.begin_micro_step();
      CHECK(contains(refusal<zero::UsageError>([&] {
                       free_pass(engine, micro, {"b", "a", "c", "d"}, 0.5f);
                     }),
                     "forward of unit a came in another order"));
    });
}

TEST_CASE("rank independence: stages and dtypes on 1 to 5 ranks") {
  for (const ConfigRow& precision : precisions()) {
    CAPTURE(precision.name);
    zero::Config config = config_of(0);
    precision.change(config);
    compare_all(config, {1, 2, 3, 5}, 8);
  }
}

TEST_CASE("rank independence: optimizers that see whole tensors, on 4 and 8 ranks") {
  for (const ConfigRow& optimizer : optimizers()) {
    CAPTURE(optimizer.name);
    zero::Config config = config_of(0);
    optimizer.change(config);
    compare_all(config, {4, 8}, 4);
  }
}

TEST_CASE("rank independence: sums of groups are those of the formula") {
  constexpr int elements = 700;
  zero::Config config = toy::config(0, {});
  config.gradient_clipping = 0;
  config.zero_core.rank_independent = true;
  config.zero_optimization.reduce_bucket_size = 1000;
  for (const std::int64_t batches : {5, 24})
    for (const std::int64_t group : groups)
      for (const bool rounds : {false, true}) {
        config.batch = {batches, 1, 0};
        config.zero_core.rank_independent_group = group;
        config.communication_data_type = rounds ? zero::DType::bf16 : zero::DType::fp32;
        std::vector<float> expected;
        for (int e = 0; e < elements; ++e)
          expected.push_back(formula(batches, group, rounds ? rounded_to_bf16 : unrounded, e));
        for (const int stage : {0, 2, 3})
          for (const int ranks : {1, 2, 3, 5}) {
            CAPTURE(batches);
            CAPTURE(group);
            CAPTURE(rounds);
            CAPTURE(stage);
            CAPTURE(ranks);
            config.zero_optimization.stage = stage;
            CHECK(gradient_of_step(ranks, config, elements) == expected);
          }
      }
}

TEST_CASE("rank independence: groups of micro batches, on 1 to 8 ranks") {
  std::set<std::uint64_t> digests;
  for (const std::int64_t group : groups) {
    CAPTURE(group);
    zero::Config config = config_of(0);
    config.bf16_enabled = true;
    config.zero_core.rank_independent_group = group;
    digests.insert(compare_all(config, {2, 3, 8}, 4).digest);
  }
  // More micro batches than a step has are one group, as all of them are.
  CHECK(digests.size() == std::size(groups) - 1);
}

TEST_CASE("rank independence: small buckets, offload, slots and executors") {
  const std::vector<ConfigRow> variants = {
      {"small buckets", [](zero::Config& c) { c.zero_optimization.reduce_bucket_size = 300; }},
      {"groups in small buckets",
       [](zero::Config& c) {
         c.zero_optimization.reduce_bucket_size = 300;
         c.zero_core.rank_independent_group = 2;
       }},
      {"optimizer in a file",
       [](zero::Config& c) {
         c.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
         c.zero_core.offload_chunk_bytes = 1 << 14;
       }},
      {"a second copy", [](zero::Config& c) { c.zero_optimization.hpz_partition_size = 2; }},
      {"compared messages", [](zero::Config& c) { c.zero_core.verify_comm = true; }},
      {"all slots", [](zero::Config& c) { c.zero_optimization.prefetch_bucket_size = 1'000'000; }}};
  const zero::tests::TemporaryDirectory directory;
  for (const ConfigRow& variant : variants) {
    CAPTURE(variant.name);
    zero::Config config = config_of(3), plain = config_of(0);
    config.zero_optimization.offload_optimizer.nvme_path = directory.path();
    variant.change(config);
    plain.zero_core.rank_independent_group = config.zero_core.rank_independent_group;
    const toy::Trace expected = toy::train_ranks(1, plain, 4);
    for (const int ranks : {1, 4, 5}) {
      if (ranks == 5 && config.zero_optimization.hpz_partition_size > 1) continue;
      for (const char* executor : {"inline", "worker"})
        compare(config, expected, ranks, 4, executor);
    }
  }
}

TEST_CASE("rank independence: as many micro batches as ranks, and hardly more") {
  const toy::Dims d;
  zero::Config config = config_of(2, d);
  config.batch.train_batch_size = 4 * d.batch;
  const toy::Trace expected = toy::train_ranks(1, config, 4);
  for (const int ranks : {2, 3, 4}) compare(config, expected, ranks, 4);
}

TEST_CASE("rank independence: random delays around every instruction") {
  for (const std::int64_t group : {1, 2}) {
    zero::Config config = config_of(0);
    config.zero_core.rank_independent_group = group;
    const toy::Trace expected = toy::train_ranks(1, config, 4);
    zero::testing::inject_delays(5, 60);
    for (const int stage : {0, 2, 3})
      for (const char* executor : {"inline", "worker"}) {
        CAPTURE(group);
        CAPTURE(stage);
        config.zero_optimization.stage = stage;
        compare(config, expected, 5, 4, executor);
      }
    zero::testing::inject_delays(0, 0);
  }
}

TEST_CASE("rank independence: a run that is resumed on other numbers of ranks") {
  const zero::tests::TemporaryDirectory whole, parts;
  std::uint64_t expected_digest = 0, digest = 0;
  const std::vector<double> expected =
      train_part(whole.path(), 1, config_of(0), 9, expected_digest);
  std::vector<double> losses;
  const std::string said = zero::tests::stderr_of([&] {
    for (const auto& [ranks, stage, until] : {std::tuple{4, 1, 3}, {3, 3, 6}, {8, 2, 9}})
      for (const double loss : train_part(parts.path(), ranks, config_of(stage), until, digest))
        losses.push_back(loss);
  });
  CHECK(said.find("may differ in bits") == std::string::npos);
  CHECK(losses == expected);
  CHECK(digest == expected_digest);
}

TEST_CASE("rank independence: checkpoints keep the number of micro batches of a group") {
  zero::Config config = config_of(0), other = config_of(2);
  config.bf16_enabled = other.bf16_enabled = true;
  config.zero_core.rank_independent_group = 3;
  const zero::tests::TemporaryDirectory whole, parts;
  std::uint64_t expected_digest = 0, digest = 0;
  const auto train = [](const std::string& directory, int ranks, const zero::Config& with,
                        int until, std::uint64_t& result) {
    return train_part<zero::bf16>(directory, ranks, with, until, result);
  };
  const std::vector<double> expected = train(whole.path(), 1, config, 6, expected_digest);
  std::vector<double> losses = train(parts.path(), 4, config, 2, digest);
  for (const std::int64_t group : {1, 2}) {
    other.zero_core.rank_independent_group = group;
    const std::string text =
        zero::tests::refusal<zero::ConfigError>([&] { train(parts.path(), 3, other, 4, digest); });
    CHECK(zero::tests::contains(text, "zero_core.rank_independent_group is " +
                                          std::to_string(group) +
                                          ", and the run has summed gradients with 3"));
  }
  for (const auto& [ranks, stage, until] : {std::tuple{3, 3, 4}, {8, 1, 6}}) {
    config.zero_optimization.stage = stage;
    for (const double loss : train(parts.path(), ranks, config, until, digest))
      losses.push_back(loss);
  }
  CHECK(losses == expected);
  CHECK(digest == expected_digest);
}

// On 5 ranks elasticity chooses 20 micro batches, on 3 and 8 ranks it would choose 24.
TEST_CASE(
    "rank independence: checkpoints keep the batch that elasticity chose at the first start") {
  const toy::Dims d;
  zero::Config plain = config_of(2);
  plain.batch.train_batch_size = 20 * d.batch;
  zero::Config elastic = config_of(2);
  elastic.batch = {};
  elastic.batch.elasticity = {
      .enabled = true, .max_train_batch_size = 24 * d.batch, .micro_batch_sizes = {d.batch}};
  const zero::tests::TemporaryDirectory whole, parts;
  std::uint64_t expected_digest = 0, digest = 0;
  const std::vector<double> expected = train_part(whole.path(), 1, plain, 6, expected_digest);
  std::vector<double> losses = train_part(parts.path(), 5, elastic, 2, digest);
  try {
    train_part(parts.path(), 3, elastic, 4, digest, false);
    FAIL("another batch was accepted");
  } catch (const zero::ConfigError& error) {
    CAPTURE(error.what());
    CHECK(std::string(error.what()).find("a step of it has 20 micro batches of ") !=
          std::string::npos);
    CHECK(std::string(error.what()).find("for 3 ranks; call zero::keep_batch()") !=
          std::string::npos);
  }
  for (const auto& [ranks, until] : {std::pair{3, 4}, {8, 6}})
    for (const double loss : train_part(parts.path(), ranks, elastic, until, digest))
      losses.push_back(loss);
  CHECK(losses == expected);
  CHECK(digest == expected_digest);
}

TEST_CASE("rank independence in groups, in every combination" * doctest::skip()) {
  for (const std::int64_t group : groups)
    for (const ConfigRow& precision : precisions())
      for (const ConfigRow& optimizer : optimizers()) {
        CAPTURE(group);
        CAPTURE(precision.name);
        CAPTURE(optimizer.name);
        zero::Config config = config_of(0);
        precision.change(config);
        optimizer.change(config);
        config.zero_core.rank_independent_group = group;
        compare_all(config, {1, 2, 3, 4, 5, 8}, 8);
      }
}

TEST_CASE("rank independence in every combination" * doctest::skip()) {
  const zero::tests::TemporaryDirectory directory;
  for (const ConfigRow& precision : precisions())
    for (const ConfigRow& optimizer : optimizers())
      for (const double clipping : {0.0, 0.5}) {
        CAPTURE(precision.name);
        CAPTURE(optimizer.name);
        CAPTURE(clipping);
        zero::Config config = config_of(0);
        precision.change(config);
        optimizer.change(config);
        config.gradient_clipping = clipping;
        compare_all(config, {1, 2, 3, 4, 5, 8}, 20);
        if (std::string(optimizer.name) != "AdamW") continue;
        const toy::Trace expected = toy::train_ranks(1, config, 20);
        config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
        config.zero_optimization.offload_optimizer.nvme_path = directory.path();
        for (const int stage : {1, 2, 3})
          for (const int ranks : {1, 2, 3, 4, 5, 8}) {
            config.zero_optimization.stage = stage;
            compare(config, expected, ranks, 20);
          }
      }
}
