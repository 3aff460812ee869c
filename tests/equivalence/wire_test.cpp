// Parameters and gradients sent in wire formats: every strategy and every schedule has the same
// bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/wire/layout.h"
#include "tests/support/hybrid_rows.h"
#include "tests/support/stderr_of.h"
#include "tests/support/toy_ranks.h"
#include "zero/plan/engine_plan.h"
#include "zero/runtime/strict_mode.h"

namespace {

constexpr int steps = 8;
constexpr const char* formats[] = {"bf16", "fp8_e4m3", "mxfp8", "int8", "int4"};

zero::Config gathered_as(const char* format, bool bf16, int accumulation = 1) {
  zero::Config config = toy::config(3, {}, accumulation);
  config.bf16_enabled = bf16;
  config.zero_core.gradient_sync = zero::GradientSync::each;
  config.zero_core.wire.gather = format;
  config.zero_core.wire.block_size = 32;
  config.zero_core.verify_every = 1;
  return config;
}

void expect_same(int ranks, const toy::Trace& expected, const zero::Config& config,
                 const char* executor = "worker") {
  const toy::Trace trace = toy::train_ranks(ranks, config, steps, executor);
  CHECK(trace.losses == expected.losses);
  CHECK(trace.norms == expected.norms);
  CHECK(trace.digest == expected.digest);
}

}  // namespace

TEST_CASE("gathers in every format: stages 1, 2 and 3 have the same bits, in any pieces") {
  for (const char* format : formats)
    for (const bool bf16 : {false, true})
      for (const int ranks : {2, 3}) {
        CAPTURE(std::string(format));
        CAPTURE(bf16);
        CAPTURE(ranks);
        const zero::Config config = gathered_as(format, bf16, bf16 ? 1 : 3);
        const toy::Trace expected = toy::train_ranks(ranks, config, steps);
        CHECK(std::ranges::min(expected.losses) < expected.losses.front());
        zero::Config plain = config;
        plain.zero_core.wire.gather = "none";
        const bool changes_bits = !bf16 || std::string(format) != "bf16";
        CHECK((toy::train_ranks(ranks, plain, steps) != expected) == changes_bits);
        for (const int stage : {1, 2, 3}) {
          CAPTURE(stage);
          zero::Config other = config;
          other.zero_optimization.stage = stage;
          other.zero_optimization.allgather_bucket_size = 300;
          expect_same(ranks, expected, other);
        }
        zero::Config kept = config;
        kept.zero_core.reshard_after_forward = false;
        kept.zero_optimization.param_persistence_threshold = 20;
        expect_same(ranks, expected, kept, "inline");
      }
}

TEST_CASE("gathers in a format inside shard groups, and with second copies") {
  zero::Config config = gathered_as("int8", true, 2);
  config.zero_core.wire.block_size = 96;
  zero::Config stage2 = config;
  stage2.zero_optimization.stage = 2;
  stage2.zero_core.reduce_group_size = 2;
  const toy::Trace expected = toy::train_ranks(4, stage2, steps);
  for (const hybrid::Row& row : hybrid::rows) {
    CAPTURE(std::string(row.name));
    expect_same(4, expected, hybrid::in_groups(config, row, 2));
  }
  config.zero_core.reduce_group_size = 2;
  config.zero_optimization.hpz_partition_size = 2;
  expect_same(4, expected, config);
}

TEST_CASE("reductions in every format: stages 0 to 3 have the same bits, in any pieces") {
  for (const char* format : formats)
    for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last})
      for (const int ranks : {2, 4}) {
        CAPTURE(std::string(format));
        CAPTURE(ranks);
        const bool bf16 = ranks == 4;
        zero::Config config = gathered_as("none", bf16, 3);
        config.zero_core.gradient_sync = sync;
        config.zero_core.wire.reduce = format;
        config.zero_core.reduce_group_size = 2;
        if (bf16) config.grad_accum_dtype = zero::DType::fp32;
        const toy::Trace expected = toy::train_ranks(ranks, config, steps);
        CHECK(std::ranges::min(expected.losses) < expected.losses.front());
        zero::Config plain = config;
        plain.zero_core.wire.reduce = "none";
        CHECK(toy::train_ranks(ranks, plain, steps) != expected);
        for (const int stage : {0, 1, 2, 3}) {
          CAPTURE(stage);
          zero::Config other = config;
          other.zero_optimization.stage = stage;
          other.zero_optimization.reduce_bucket_size = 300;
          expect_same(ranks, expected, other);
        }
      }
}

TEST_CASE("reductions in a format show an overflow in fp16") {
  for (const char* format : {"int4", "mxfp8"}) {
    CAPTURE(std::string(format));
    zero::Config config = toy::overflowing_config(0, {});
    config.zero_core.wire.reduce = format;
    const toy::Trace expected = toy::train_ranks(3, config, steps);
    CHECK(expected.scales.front() > expected.scales.back());
    for (const int stage : {2, 3}) {
      config.zero_optimization.stage = stage;
      CHECK(toy::train_ranks(3, config, steps) == expected);
    }
  }
}

TEST_CASE("reductions in a format inside groups and over them: equal bits over the strategies") {
  for (const auto sync :
       {zero::GradientSync::each, zero::GradientSync::last, zero::GradientSync::inner}) {
    zero::Config config = gathered_as("int8", true, 2);
    config.grad_accum_dtype = zero::DType::fp32;
    config.zero_core.gradient_sync = sync;
    config.zero_core.wire.reduce = "int4";
    const toy::Trace expected =
        toy::train_ranks(4, hybrid::in_groups(config, hybrid::rows[0], 2), steps);
    for (const hybrid::Row& row : hybrid::rows) {
      CAPTURE(std::string(row.name));
      zero::Config other = hybrid::in_groups(config, row, 2);
      other.zero_optimization.reduce_bucket_size = 300;
      expect_same(4, expected, other);
    }
    if (sync != zero::GradientSync::inner) continue;
    // Stages without shard groups sum over both hops in the hybrid strategies' groups.
    for (const int stage : {1, 2, 3}) {
      CAPTURE(stage);
      zero::Config other = hybrid::with_sums_of(config, 2);
      other.zero_optimization.stage = stage;
      other.zero_optimization.reduce_bucket_size = 300;
      expect_same(4, expected, other);
    }
  }
}

TEST_CASE("ZeRO++'s gradients in two hops: equal bits in any pieces, with any slots") {
  for (const int group : {1, 2, 3, 6}) {
    CAPTURE(group);
    zero::Config config = gathered_as("none", true, 2);
    config.grad_accum_dtype = zero::DType::fp32;
    config.zero_core.reduce_group_size = group;
    zero::Config one_hop = config;
    one_hop.zero_core.wire.reduce = "int4";
    config.zero_optimization.quantized_gradients = true;
    const toy::Trace expected = toy::train_ranks(6, config, steps);
    CHECK(std::ranges::min(expected.losses) < expected.losses.front());
    const bool two_hops = group == 2 || group == 3;
    CHECK((toy::train_ranks(6, one_hop, steps) != expected) == two_hops);
    config.zero_optimization.reduce_bucket_size = 300;
    config.zero_core.reshard_after_forward = false;
    expect_same(6, expected, config);
  }
}

TEST_CASE("gathers encoded only between nodes give the values of gathers encoded everywhere") {
  for (const bool bf16 : {false, true}) {
    CAPTURE(bf16);
    zero::Config config = gathered_as("int8", bf16);
    config.zero_core.reduce_group_size = 2;
    const toy::Trace expected = toy::train_ranks(6, config, steps);
    config.zero_core.wire.gather_inside = "none";
    config.zero_optimization.allgather_bucket_size = 600;
    for (const int stage : {1, 2, 3}) {
      CAPTURE(stage);
      config.zero_optimization.stage = stage;
      expect_same(6, expected, config);
    }
  }
  // Shard groups, each on two nodes.
  zero::Config config = gathered_as("int4", true, 2);
  config.zero_core.reduce_group_size = 2;
  config.zero_core.wider_reduce_groups = {4};
  const auto in_groups = [&](const zero::Config& base, const hybrid::Row& row) {
    zero::Config grouped = hybrid::in_groups(base, row, 4);
    grouped.zero_core.reduce_group_size = 2;
    return grouped;
  };
  const toy::Trace expected = toy::train_ranks(8, in_groups(config, hybrid::rows[0]), steps);
  config.zero_core.wire.gather_inside = "none";
  for (const hybrid::Row& row : hybrid::rows) {
    CAPTURE(std::string(row.name));
    expect_same(8, expected, in_groups(config, row));
  }
}

TEST_CASE("other formats inside nodes than between them: equal bits at every stage") {
  for (const char* inside : {"none", "int8"})
    for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last}) {
      CAPTURE(std::string(inside));
      zero::Config config = gathered_as("mxfp8", true, 3);
      config.grad_accum_dtype = zero::DType::fp32;
      config.zero_core.gradient_sync = sync;
      config.zero_core.reduce_group_size = 2;
      config.zero_core.wire.reduce = "int4";
      config.zero_core.wire.gather_inside = config.zero_core.wire.reduce_inside = inside;
      const toy::Trace expected = toy::train_ranks(6, config, steps);
      CHECK(std::ranges::min(expected.losses) < expected.losses.front());
      config.zero_optimization.reduce_bucket_size = 600;
      for (const int stage : {1, 2, 3}) {
        CAPTURE(stage);
        config.zero_optimization.stage = stage;
        expect_same(6, expected, config);
      }
    }
  // Parameters are not encoded, since stage 0 gathers none.
  zero::Config config = gathered_as("none", true);
  config.zero_core.reduce_group_size = 2;
  config.zero_core.wire.reduce = "int4";
  config.zero_core.wire.reduce_inside = "none";
  const toy::Trace expected = toy::train_ranks(4, config, steps);
  config.zero_optimization.stage = 0;
  expect_same(4, expected, config);
  // In shard groups of a node, sums inside are not encoded, and those over the groups are.
  config.zero_core.wire.reduce_inside = "";
  config.zero_core.gradient_sync = zero::GradientSync::automatic;
  zero::Config plain_inside = config;
  plain_inside.zero_core.wire.reduce_inside = "none";
  const toy::Trace grouped =
      toy::train_ranks(4, hybrid::in_groups(plain_inside, hybrid::rows[0], 2), steps);
  CHECK(grouped == toy::train_ranks(4, hybrid::in_groups(plain_inside, hybrid::rows[2], 2), steps));
  CHECK(grouped != toy::train_ranks(4, hybrid::in_groups(config, hybrid::rows[0], 2), steps));
}

TEST_CASE("every optimizer updates the parameters that it had before they were gathered") {
  for (const char* type : {"Lion", "Adagrad", "Lamb", "SGD", "Muon", "Adafactor"}) {
    CAPTURE(std::string(type));
    zero::Config config = gathered_as("int8", false);
    config.optimizer = zero::optim::default_options(type);
    config.optimizer.learning_rate = 0.01;
    const toy::Trace expected = toy::train_ranks(3, config, steps);
    config.zero_optimization.stage = 1;
    expect_same(3, expected, config);
  }
}

namespace {

std::int64_t sent_by(const zero::RankReport& report) {
  std::int64_t all = 0;
  for (const zero::TrafficUse& use : report.traffic) all += use.bytes_sent;
  return all;
}

// Trains for some steps, and checks that the allocated memory equals the plan's.
std::int64_t bytes_per_step(int ranks, const zero::Config& config) {
  std::int64_t bytes = 0;
  zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, toy::describe({}), config);
    engine.initialize(toy::fill);
    toy::Activations a = toy::make_activations({});
    const std::int64_t before = sent_by(engine.report().ranks[runtime.rank()]);
    for (int step = 0; step < 2; ++step) {
      for (zero::MicroStep micro : engine.micro_steps()) {
        toy::load_samples({}, a, step * runtime.size() + runtime.rank());
        micro.loss(toy::micro_step<zero::bf16>(engine, {}, a, micro.loss_scale()));
      }
      engine.step();
    }
    const zero::RankReport report = engine.report().ranks[runtime.rank()];
    for (const zero::MemoryUse& use : report.memory) CHECK(use.peak == use.planned);
    if (runtime.is_root()) bytes = (sent_by(report) - before) / 2;
  });
  return bytes;
}

// Returns the bytes that the gathers of one step send, over all flat units.
std::int64_t gathered_bytes(const zero::Config& config, int ranks) {
  const zero::detail::EnginePlan plan(toy::describe({}).declared(), config,
                                      {0, ranks, false, zero::detail::strict_mode()});
  std::int64_t bytes = 0;
  for (const zero::detail::StepPlan* steps : {&plan.steps.only, &plan.steps.update})
    for (const zero::detail::Instruction& instruction : steps->instructions) {
      if (instruction.op != zero::detail::Op::gather) continue;
      for (const auto id : plan.layout.segments_of(instruction.target)) {
        const zero::detail::Segment& segment = plan.layout.segment(id);
        const bool travels = segment.trainable || plan.policy.parameters_sharded;
        const zero::comm::wire::Codec codec =
            segment.encoded ? plan.wire.gather : zero::comm::wire::Codec({});
        if (travels)
          bytes += (ranks - 1) *
                   zero::comm::wire::encoded_bytes(codec, segment.slice, zero::DType::bf16);
      }
    }
  return bytes;
}

}  // namespace

TEST_CASE("gathers send the bytes of their formulas, and take the memory of their plans") {
  constexpr int ranks = 3;
  for (const int stage : {1, 2, 3})
    for (const char* format : formats) {
      CAPTURE(stage);
      CAPTURE(std::string(format));
      zero::Config config = gathered_as(format, true);
      config.zero_optimization.stage = stage;
      zero::Config plain = config;
      plain.zero_core.wire.gather = "none";
      CHECK(bytes_per_step(ranks, config) - bytes_per_step(ranks, plain) ==
            gathered_bytes(config, ranks) - gathered_bytes(plain, ranks));
    }
}

TEST_CASE("reductions send the bytes of their formulas, and take the memory of their plans") {
  constexpr int ranks = 4;
  using zero::comm::wire::encoded_bytes;
  for (const int stage : {0, 2, 3})
    for (std::size_t f = 1; f < std::size(zero::comm::wire::format_names); ++f) {
      zero::Config config = gathered_as("none", true);
      config.zero_optimization.stage = stage;
      config.zero_core.wire.reduce = zero::comm::wire::format_names[f];
      CAPTURE(stage);
      CAPTURE(config.zero_core.wire.reduce);
      const zero::comm::wire::Codec codec(static_cast<zero::comm::wire::Format>(f), 32), none({});
      const zero::detail::EnginePlan plan(toy::describe({}).declared(), config, {0, ranks});
      std::int64_t saved = 0;
      for (const auto& id : plan.layout.segments()) {
        const zero::detail::Segment& segment = plan.layout.segment(id);
        if (!segment.trainable) continue;
        saved += (ranks - 1) * (encoded_bytes(none, segment.slice, zero::DType::bf16) -
                                encoded_bytes(codec, segment.slice, zero::DType::bf16));
      }
      zero::Config plain = config;
      plain.zero_core.wire.reduce = "none";
      CHECK(bytes_per_step(ranks, plain) - bytes_per_step(ranks, config) == saved);
    }
}

TEST_CASE("forward and backward read the shards' decoded values, on every rank") {
  constexpr std::int64_t count = 1000;
  std::vector<float> given(count);
  for (std::int64_t i = 0; i < count; ++i) given[i] = toy::start_value("w", i, 0.7f);
  const auto fill = [&](zero::ParamShard shard) {
    std::copy_n(given.begin() + shard.begin, shard.values.size(), shard.values.begin());
  };
  zero::ModelSpec model;
  model.unit("u").param("w", {40, 25});
  for (const int stage : {1, 2, 3})
    for (std::size_t format = 1; format < std::size(zero::comm::wire::format_names); ++format) {
      const char* name = zero::comm::wire::format_names[format];
      CAPTURE(stage);
      CAPTURE(std::string(name));
      zero::Config config = gathered_as(name, false);
      config.zero_optimization.stage = stage;
      const zero::comm::wire::Codec codec(static_cast<zero::comm::wire::Format>(format), 32);
      std::vector<float> decoded(count);
      std::vector<std::int64_t> encoded(count + 2);
      zero::comm::wire::encode(codec, {given.data(), zero::DType::fp32, count}, encoded.data());
      zero::comm::wire::decode(codec, encoded.data(), count, decoded.data(), zero::DType::fp32);
      CHECK(decoded != given);
      zero::testing::run_ranks(3, [&](zero::Runtime& runtime) {
        zero::Engine engine(runtime, model, config);
        engine.initialize(fill);
        std::vector<float> exact(count);
        engine.read("u.w", "value", exact);
        CHECK(exact == given);
        auto units = engine.units();
        for (zero::MicroStep micro : engine.micro_steps()) {
          {
            auto s = units.front().forward();
            CHECK(std::ranges::equal(std::span(s.value<float>("w"), count), decoded));
          }
          auto s = units.front().backward();
          CHECK(std::ranges::equal(std::span(s.value<float>("w"), count), decoded));
          std::fill_n(s.grad<float>("w"), count, 0.f);
          micro.loss(0);
        }
        engine.step();
      });
    }
}

TEST_CASE("ZeRO++'s keys gather the matrices of repeated units as int8, and nothing else") {
  const auto encoded = [](bool trainable, bool frozen, int stage, std::int64_t persistent) {
    zero::Config config = toy::config(stage, {});
    config.zero_optimization.quantized_weights = trainable;
    config.zero_optimization.quantized_nontrainable_weights = frozen;
    config.zero_optimization.param_persistence_threshold = persistent;
    const zero::detail::Model model = toy::describe({}).declared();
    const zero::detail::EnginePlan plan(model, config, {0, 2});
    std::set<std::string> names;
    for (std::size_t p = 0; p < model.params.size(); ++p)
      if (plan.layout.segment(plan.layout.place_of_param[p]).encoded)
        names.insert(model.params[p].name.substr(model.params[p].name.rfind('.') + 1));
    return names;
  };
  using Names = std::set<std::string>;
  CHECK(encoded(true, false, 3, 0) == Names{"weight"});
  CHECK(encoded(false, true, 3, 0) == Names{"frozen"});
  CHECK(encoded(true, true, 3, 15) == Names{"weight"});
  CHECK(encoded(true, true, 2, 0).empty());

  zero::Config config = gathered_as("none", true, 2);
  config.zero_optimization.quantized_weights = true;
  config.zero_optimization.quantized_nontrainable_weights = true;
  const toy::Trace expected = toy::train_ranks(4, config, steps);
  config.zero_optimization.hpz_partition_size = 2;
  expect_same(4, expected, config);
}

TEST_CASE("arrays that cannot be encoded are errors that name them") {
  const auto refuse = [](const char* message, const auto& change) {
    zero::Config config = gathered_as("int8", false);
    change(config);
    CHECK_THROWS_WITH_AS(toy::train_ranks(2, config, 1), doctest::Contains(message),
                         zero::ConfigError);
  };
  refuse("zero_core.wire.gather is \"int8\", and stage 0 (NO_SHARD) gathers no parameters",
         [](auto& c) { c.zero_optimization.stage = 0; });
  refuse("zero_core.wire.gather is \"int3\"; allowed: none, bf16, fp8_e4m3, mxfp8, int8, int4",
         [](auto& c) { c.zero_core.wire.gather = "int3"; });
  refuse("zero_core.wire.reduce is \"int4\", and zero_optimization.zero_quantized_gradients",
         [](auto& c) {
           c.zero_core.wire.reduce = "int4";
           c.zero_optimization.quantized_gradients = true;
         });
  refuse("zero_core.wire.reduce is \"fp8\"; allowed: none, bf16, fp8_e4m3",
         [](auto& c) { c.zero_core.wire.reduce = "fp8"; });
  refuse("zero_core.wire.block_size: the blocks of a wire format have a multiple of 32",
         [](auto& c) { c.zero_core.wire.block_size = 100; });
  refuse("zero_core.wire.reduce_inside is \"int8\", and between nodes nothing is encoded",
         [](auto& c) { c.zero_core.wire.reduce_inside = "int8"; });
  refuse("gather_inside differs from the format between nodes, and 2 ranks cannot be cut",
         [](auto& c) {
           c.zero_core.wire.gather_inside = "none";
           c.zero_core.reduce_group_size = 3;
         });
  refuse("zero_core.wire.gather is \"int4\", and zero_optimization.zero_quantized_weights",
         [](auto& c) {
           c.zero_core.wire.gather = "int4";
           c.zero_optimization.quantized_weights = true;
         });
}

namespace {

using Values = std::vector<float>;

Values through(const zero::comm::wire::Codec& codec, const Values& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::int64_t> encoded(values.size() + 2);
  Values decoded(values.size());
  zero::comm::wire::encode(codec, {values.data(), zero::DType::fp32, count}, encoded.data());
  zero::comm::wire::decode(codec, encoded.data(), count, decoded.data(), zero::DType::fp32);
  return decoded;
}

Values sum_of(const std::vector<Values>& parts) {
  Values sum = parts[0];
  for (std::size_t r = 1; r < parts.size(); ++r)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += parts[r][i];
  return sum;
}

constexpr int gradient_ranks = 6;

Values gradient_of(int rank) {
  Values gradient(1000);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = toy::start_value("g", rank * 1000 + static_cast<std::int64_t>(i), 0.3f);
  return gradient;
}

// Returns the sum over the ranks, read on rank 0.
Values reduced(const zero::Config& config, int steps = 1, double* error = nullptr) {
  Values sum(1000);
  zero::ModelSpec model;
  model.unit("u").param("w", {1000});
  zero::testing::run_ranks(gradient_ranks, [&](zero::Runtime& runtime) {
    zero::Engine engine(runtime, model, config);
    engine.initialize(toy::fill);
    for (int step = 0; step < steps; ++step) {
      for (zero::MicroStep micro : engine.micro_steps()) {
        { auto scope = engine.unit("u").forward(); }
        auto scope = engine.unit("u").backward();
        std::ranges::copy(gradient_of(runtime.rank()), scope.grad<float>("w"));
        micro.loss(0);
      }
      const zero::StepResult result = engine.step().wait();
      if (error != nullptr && runtime.is_root()) *error = result.compression_error;
    }
    Values whole(1000);
    engine.read("u.w", "grad", whole);
    if (runtime.is_root()) sum = whole;
  });
  return sum;
}

}  // namespace

TEST_CASE("sums are those of decoded gradients in fp32, encoded once in each hop") {
  for (const int group : {1, 2, 3, 6})
    for (const bool two_hops : {false, true})
      for (const bool plain_inside : {false, true}) {
        CAPTURE(group);
        CAPTURE(two_hops);
        CAPTURE(plain_inside);
        zero::Config config = gathered_as("none", false);
        config.gradient_allreduce_op = "sum";
        config.zero_core.reduce_group_size = group;
        config.zero_optimization.reduce_bucket_size = 600;
        config.zero_optimization.quantized_gradients = two_hops;
        if (!two_hops) config.zero_core.wire.reduce = "int4";
        if (plain_inside) config.zero_core.wire.reduce_inside = "none";
        const zero::comm::wire::Codec codec(zero::comm::wire::Format::int4, 32);
        std::vector<Values> groups;
        for (int first = 0; first < gradient_ranks; first += group) {
          std::vector<Values> ranks;
          const bool plain = plain_inside && group > 1;
          for (int r = first; r < first + group; ++r)
            ranks.push_back(plain ? gradient_of(r) : through(codec, gradient_of(r)));
          groups.push_back(sum_of(ranks));
          if ((two_hops || plain_inside) && group > 1 && group < gradient_ranks)
            groups.back() = through(codec, groups.back());
        }
        CHECK(reduced(config) == sum_of(groups));
      }
}

TEST_CASE("errors of encodings are measured on request, and large ones are reported once") {
  zero::Config config = gathered_as("none", false);
  config.zero_core.reduce_group_size = 1;
  config.zero_core.wire.reduce = "int4";
  const zero::comm::wire::Codec codec(zero::comm::wire::Format::int4, 32);
  double difference = 0, squares = 0;
  const Values own = gradient_of(0), sent = through(codec, own);
  for (std::size_t i = 0; i < own.size(); ++i) {
    difference += std::pow(static_cast<double>(own[i] - sent[i]), 2);
    squares += std::pow(static_cast<double>(own[i]), 2);
  }
  const double expected = std::sqrt(difference / squares);
  CHECK(expected > 0.01);
  const Values plain = reduced(config);
  const auto lines_above = [&](double max_error) {
    config.zero_core.wire.max_error = max_error;
    double measured = 0;
    const std::string text =
        zero::tests::stderr_of([&] { CHECK(reduced(config, 3, &measured) == plain); });
    CHECK(measured == doctest::Approx(expected).epsilon(1e-5));
    const std::string line = "zero: step 1: what rank 0 has encoded of unit u lost ";
    const std::size_t at = text.find(line);
    return at == std::string::npos ? 0 : text.find("lost", at + line.size()) == text.npos ? 1 : 2;
  };
  CHECK(lines_above(1.01 * expected) == 0);
  CHECK(lines_above(0.99 * expected) == 1);
}

TEST_CASE("exchanges in two hops send the bytes of their formula") {
  constexpr int ranks = 6, group = 2;
  constexpr std::int64_t inside = (group - 1) * (ranks / group), over = ranks / group - 1;
  using zero::comm::wire::encoded_bytes;
  const zero::comm::wire::Codec int4(zero::comm::wire::Format::int4, 32), none({});
  for (const bool plain_inside : {false, true}) {
    CAPTURE(plain_inside);
    zero::Config plain = gathered_as("none", true);
    plain.zero_core.reduce_group_size = group;
    zero::Config config = plain;
    config.zero_optimization.quantized_gradients = true;
    if (plain_inside) {
      config.zero_core.wire.gather = "int4";
      config.zero_core.wire.gather_inside = config.zero_core.wire.reduce_inside = "none";
    }
    const zero::detail::EnginePlan plan(toy::describe({}).declared(), config, {0, ranks});
    std::int64_t saved = 0;
    const auto saves = [&](const zero::detail::Segment& segment) {
      const std::int64_t whole = encoded_bytes(none, segment.slice, zero::DType::bf16),
                         encoded = encoded_bytes(int4, segment.slice, zero::DType::bf16);
      return (ranks - 1) * whole - inside * (plain_inside ? whole : encoded) - over * encoded;
    };
    for (const auto& step : {plan.steps.only, plan.steps.update})
      for (const zero::detail::Instruction& instruction : step.instructions)
        for (const auto id : plan.layout.segments_of(std::max(instruction.target, 0))) {
          const zero::detail::Segment& segment = plan.layout.segment(id);
          const bool reduces = instruction.op == zero::detail::Op::reduce && segment.trainable;
          const bool gathers = instruction.op == zero::detail::Op::gather && segment.encoded;
          if (reduces || gathers) saved += saves(segment);
        }
    CHECK(bytes_per_step(ranks, plain) - bytes_per_step(ranks, config) == saved);
  }
}
