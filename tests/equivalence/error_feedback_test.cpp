// Error feedback of encoded reductions: every strategy and every schedule has the same bits, and a
// skipped step changes nothing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "comm/wire/codec.h"
#include "tests/support/hybrid_rows.h"
#include "tests/support/toy_ranks.h"
#include "zero/plan/engine_plan.h"

namespace {

constexpr int steps = 8;

zero::Config fed_back(const char* format, int accumulation = 1) {
  zero::Config config = toy::config(3, {}, accumulation);
  config.zero_core.gradient_sync = zero::GradientSync::each;
  config.zero_core.wire.reduce = format;
  config.zero_core.wire.block_size = 32;
  config.zero_core.wire.error_feedback.reset_T = 5;
  config.zero_core.verify_every = 1;
  return config;
}

zero::Config without_feedback(zero::Config config) {
  config.zero_core.wire.error_feedback = {};
  config.zero_optimization.loco = {};
  return config;
}

void expect_same(int ranks, const toy::Trace& expected, const zero::Config& config,
                 const char* executor = "worker") {
  CHECK(toy::train_ranks(ranks, config, steps, executor) == expected);
}

}  // namespace

TEST_CASE("error feedback: stages 0 to 3 have the same bits, in any pieces") {
  for (const char* format : {"fp8_e4m3", "mxfp8", "int8", "int4"})
    for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last}) {
      CAPTURE(std::string(format));
      zero::Config config = fed_back(format, 3);
      config.zero_core.gradient_sync = sync;
      const toy::Trace expected = toy::train_ranks(3, config, steps);
      CHECK(std::ranges::min(expected.losses) < expected.losses.front());
      CHECK(toy::train_ranks(3, without_feedback(config), steps) != expected);
      for (const int stage : {0, 1, 2, 3}) {
        CAPTURE(stage);
        zero::Config other = config;
        other.zero_optimization.stage = stage;
        other.zero_optimization.reduce_bucket_size = 300;
        expect_same(3, expected, other);
      }
    }
}

TEST_CASE("error feedback inside groups and over them: equal bits over the strategies") {
  for (const auto sync :
       {zero::GradientSync::each, zero::GradientSync::last, zero::GradientSync::inner}) {
    zero::Config config = fed_back("int4", 2);
    config.zero_core.gradient_sync = sync;
    const zero::Config first = hybrid::in_groups(config, hybrid::rows[0], 2);
    const toy::Trace expected = toy::train_ranks(4, first, steps);
    CHECK(toy::train_ranks(4, without_feedback(first), steps) != expected);
    for (const hybrid::Row& row : hybrid::rows) {
      CAPTURE(std::string(row.name));
      zero::Config other = hybrid::in_groups(config, row, 2);
      other.zero_optimization.reduce_bucket_size = 300;
      expect_same(4, expected, other);
    }
    if (sync != zero::GradientSync::inner) continue;
    // Groups that only sum together encode the same vectors.
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(stage);
      zero::Config other = hybrid::with_sums_of(config, 2);
      other.zero_optimization.stage = stage;
      other.zero_optimization.reduce_bucket_size = 300;
      expect_same(4, expected, other);
    }
  }
}

TEST_CASE(
    "error feedback of sums that are encoded between nodes alone: equal bits at every stage") {
  zero::Config config = hybrid::with_sums_of(fed_back("int4", 2), 2);
  config.zero_core.wire.reduce_inside = "none";
  const toy::Trace expected = toy::train_ranks(6, config, steps);
  CHECK(toy::train_ranks(6, without_feedback(config), steps) != expected);
  config.zero_optimization.reduce_bucket_size = 600;
  for (const int stage : {0, 1, 2}) {
    CAPTURE(stage);
    config.zero_optimization.stage = stage;
    expect_same(6, expected, config);
  }
}

TEST_CASE("error feedback of ZeRO++'s two hops: equal bits in any pieces, with any slots") {
  zero::Config config = fed_back("none", 2);
  config.zero_core.wire.error_feedback = {};
  config.zero_optimization.quantized_gradients = true;
  config.zero_optimization.loco.err_beta = 0.5;
  config.zero_core.reduce_group_size = 2;
  const toy::Trace expected = toy::train_ranks(4, config, steps);
  CHECK(std::ranges::min(expected.losses) < expected.losses.front());
  CHECK(toy::train_ranks(4, without_feedback(config), steps) != expected);
  zero::Config default_beta = config;
  default_beta.zero_optimization.loco.err_beta = 0.8;
  CHECK(toy::train_ranks(4, default_beta, steps) != expected);
  config.zero_optimization.reduce_bucket_size = 300;
  config.zero_core.reshard_after_forward = false;
  expect_same(4, expected, config);
}

TEST_CASE("error feedback: residues start from zero after N steps") {
  zero::Config config = fed_back("int4");
  config.zero_core.wire.error_feedback.reset_T = 1;
  CHECK(toy::train_ranks(2, config, steps) == toy::train_ranks(2, without_feedback(config), steps));
}

TEST_CASE("error feedback with a dynamic loss scale: stages have the same bits") {
  zero::Config config = toy::overflowing_config(0, {});
  config.zero_core.wire.reduce = "int4";
  config.zero_core.wire.error_feedback.err_beta = 0.8;
  const toy::Trace expected = toy::train_ranks(3, config, steps);
  CHECK(expected.scales.front() > expected.scales.back());
  for (const int stage : {2, 3}) {
    config.zero_optimization.stage = stage;
    expect_same(3, expected, config);
  }
}

namespace {

// Trains one matrix in fp16 on gradients that are the same for every loss scale, except in steps
// that overflow somewhere.
std::uint64_t digest_after(zero::Config config, const std::vector<bool>& overflows) {
  constexpr std::int64_t count = 1000;
  config.fp16_enabled = true;
  config.communication_data_type = config.grad_accum_dtype = zero::DType::fp32;
  std::uint64_t digest = 0;
  zero::ModelSpec model;
  model.unit("u").param("w", {40, 25});
  zero::testing::run_ranks(2, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, model, config);
    engine.initialize(toy::fill);
    int number = 0;  // counts steps that do not overflow
    for (const bool overflow : overflows) {
      for (zero::MicroStep micro : engine.micro_steps()) {
        { auto scope = engine.unit("u").forward(); }
        auto scope = engine.unit("u").backward();
        auto* gradient = scope.grad<zero::fp16>("w");
        for (std::int64_t i = 0; i < count; ++i) {
          const float value =
              toy::start_value("g", (number * 2 + runtime.rank()) * count + i, 0.3f);
          gradient[i] =
              zero::from_float<zero::fp16>(std::round(value * 256) / 256 * micro.loss_scale());
        }
        if (overflow)
          gradient[70] = zero::from_float<zero::fp16>(std::numeric_limits<float>::infinity());
        micro.loss(0);
      }
      CHECK(engine.step().wait().skipped == overflow);
      if (!overflow) ++number;
    }
    if (const std::uint64_t own = engine.digest(); runtime.is_root()) digest = own;
  });
  return digest;
}

}  // namespace

TEST_CASE("error feedback: a skipped step leaves the residues of before, at any loss scale") {
  for (const int stage : {0, 3}) {
    CAPTURE(stage);
    zero::Config config = fed_back("int4");
    config.zero_core.wire.error_feedback = {.err_beta = 0.8, .reset_T = {}};
    config.zero_optimization.stage = stage;
    config.loss_scale.initial_scale_power = 6;
    config.loss_scale.hysteresis = 1;
    const std::uint64_t expected = digest_after(config, {false, false, false, false});
    CHECK(digest_after(without_feedback(config), {false, false, false, false}) != expected);
    CHECK(digest_after(config, {true, false, false, true, true, false, false}) == expected);
    config.loss_scale.loss_scale = 4;
    CHECK(digest_after(config, {false, false, false, false}) == expected);
  }
}

TEST_CASE("error feedback takes the memory of its formula, which the plan has") {
  const auto communication = [](const zero::Config& config) {
    std::int64_t bytes = 0;
    zero::testing::run_ranks(4, [&](zero::Runtime& runtime) {
      zero::Engine engine(runtime, toy::describe({}), config);
      engine.initialize(toy::fill);
      const zero::RankReport report = engine.report().ranks[runtime.rank()];
      for (const zero::MemoryUse& use : report.memory) {
        CHECK(use.peak == use.planned);
        if (use.category == "communication" && runtime.is_root()) bytes = use.planned;
      }
    });
    return bytes;
  };
  for (const bool two_hops : {false, true})
    for (const bool dynamic : {false, true}) {
      CAPTURE(two_hops);
      zero::Config config = fed_back(two_hops ? "none" : "int8");
      config.zero_optimization.quantized_gradients = two_hops;
      config.zero_core.reduce_group_size = 2;
      config.fp16_enabled = dynamic;
      const zero::detail::EnginePlan plan(toy::describe({}).declared(), config, {0, 4});
      std::int64_t elements = 0;
      for (const auto& id : plan.layout.segments()) {
        const zero::detail::Segment& segment = plan.layout.segment(id);
        if (segment.trainable) elements += segment.length + (two_hops ? segment.length / 2 : 0);
      }
      const std::int64_t residues = elements + elements / 32 * 4;
      const std::int64_t more = communication(config) - communication(without_feedback(config));
      const std::int64_t expected = (dynamic ? 2 : 1) * residues;
      CHECK(more >= expected);
      CHECK(more < expected + 1024);  // the arena rounds pieces, and each vector has 16 bytes
    }
}

TEST_CASE("error feedback without an encoded reduction is an error that names it") {
  const auto refuse = [](const char* message, const auto& change) {
    zero::Config config = fed_back("int8");
    change(config);
    CHECK_THROWS_WITH_AS(toy::train_ranks(2, config, 1), doctest::Contains(message),
                         zero::ConfigError);
  };
  refuse("zero_core.wire.error_feedback needs reductions in",
         [](zero::Config& c) { c.zero_core.wire.reduce = "none"; });
  refuse("and they travel as bf16", [](zero::Config& c) { c.zero_core.wire.reduce = "bf16"; });
  refuse("zeropp_loco_param needs zero_quantized_gradients", [](zero::Config& c) {
    c.zero_core.wire.error_feedback = {};
    c.zero_optimization.loco.reset_T = 10;
  });
  refuse("are the same error feedback: leave one of them out", [](zero::Config& c) {
    c.zero_core.wire.reduce = "none";
    c.zero_optimization.quantized_gradients = true;
    c.zero_optimization.loco.reset_T = 10;
  });
}
