// Memory and traffic against closed formulas, planned without allocating memory.
#include <cstdlib>
#include <set>

#include <doctest/doctest.h>

#include "comm/wire/layout.h"
#include "tests/support/models.h"
#include "tests/support/plan_traffic.h"
#include "zero/base/ledger.h"
#include "zero/plan/engine_plan.h"
#include "zero/state/state.h"
#include "zero/zero.h"

using namespace zero::detail;
using zero::MemoryCategory;

namespace {

zero::Config config_for(int stage, bool bf16, int accumulation = 1) {
  zero::Config config;
  config.batch.train_micro_batch_size_per_gpu = 1;
  config.batch.gradient_accumulation_steps = accumulation;
  config.zero_optimization.stage = stage;
  config.bf16_enabled = bf16;
  return config;
}

struct Planned {
  zero::Ledger ledger;
  double states() const {
    double bytes = 0;
    for (const auto category : {MemoryCategory::parameters, MemoryCategory::gradients,
                                MemoryCategory::master_weights, MemoryCategory::optimizer_state})
      bytes += static_cast<double>(ledger.account(category).planned);
    return bytes;
  }
  std::int64_t slots() const {
    return ledger.account(MemoryCategory::parameter_slots).planned +
           ledger.account(MemoryCategory::gradient_slots).planned;
  }
};

Planned planned(const zero::ModelSpec& spec, const zero::Config& config, int ranks) {
  const EnginePlan plan(spec.declared(), config, {ranks - 1, ranks});
  const ModelState state(plan);
  Planned result;
  state.plan(result.ledger);
  return result;
}

}  // namespace

TEST_CASE("model states take the bytes of the ZeRO formulas within 0.1 %") {
  for (const models::Gpt& gpt : {models::gpt2, models::gpt2_medium, models::gpt2_xl}) {
    const zero::ModelSpec spec = models::describe(gpt);
    const auto psi = static_cast<double>(spec.declared().total_elements());
    for (const int n : {1, 2, 3, 4, 8, 64}) {
      const double fp32[] = {16 * psi, 8 * psi + 8 * psi / n, 4 * psi + 12 * psi / n, 16 * psi / n};
      const double bf16[] = {16 * psi, 4 * psi + 12 * psi / n, 2 * psi + 14 * psi / n,
                             16 * psi / n};
      for (int stage = 0; stage < 4; ++stage) {
        CAPTURE(n);
        CAPTURE(stage);
        const double measured32 = planned(spec, config_for(stage, false), n).states();
        const double measured16 = planned(spec, config_for(stage, true), n).states();
        CHECK(std::abs(measured32 / fp32[stage] - 1) < 1e-3);
        CHECK(std::abs(measured16 / bf16[stage] - 1) < 1e-3);
      }
    }
  }
}

TEST_CASE("hybrid strategies and second copies take the bytes of their formulas within 0.1 %") {
  const zero::ModelSpec spec = models::describe(models::gpt2_medium);
  const auto psi = static_cast<double>(spec.declared().total_elements());
  for (const bool bf16 : {false, true})
    for (const auto& [n, s] : {std::pair{4, 2}, {64, 8}}) {
      CAPTURE(n);
      CAPTURE(bf16);
      const double width = bf16 ? 2 : 4, optimizer = 16 - 2 * width;
      zero::Config config = config_for(3, bf16);
      config.zero_core.shard_group_size = s;
      const double hybrid = planned(spec, config, n).states();
      CHECK(std::abs(hybrid / (16 * psi / s) - 1) < 1e-3);
      config.zero_core.optimizer_over_all_ranks = true;
      const double hfsdp = planned(spec, config, n).states();
      CHECK(std::abs(hfsdp / (2 * width * psi / s + optimizer * psi / n) - 1) < 1e-3);
      config = config_for(3, bf16);
      config.zero_optimization.hpz_partition_size = s;
      const double second = planned(spec, config, n).states();
      CHECK(std::abs(second / (16 * psi / n + width * psi / s) - 1) < 1e-3);
    }
}

TEST_CASE("states of other optimizers take the bytes of their rules, and staging is planned") {
  const zero::ModelSpec spec = models::describe(models::gpt2);
  const auto psi = static_cast<double>(spec.declared().total_elements());
  const auto with = [&](const char* type, int stage, int n) {
    zero::Config config = config_for(stage, false);
    config.optimizer = zero::optim::default_options(type);
    return planned(spec, config, n);
  };
  for (const int n : {1, 4}) {
    for (const char* type : {"Lion", "Adagrad"})
      CHECK(std::abs(with(type, 3, n).states() / (12 * psi / n) - 1) < 1e-3);
    CHECK(std::abs(with("Lamb", 3, n).states() / (16 * psi / n) - 1) < 1e-3);
    CHECK(std::abs(with("SGD", 3, n).states() / (8 * psi / n) - 1) < 1e-3);
    // Matrices of the blocks have one state, all else two.
    const double matrices = 12 * 12.0 * 768 * 768;
    CHECK(std::abs(with("Muon", 3, n).states() / ((16 * psi - 4 * matrices) / n) - 1) < 1e-3);
  }
  const auto staging = [](const Planned& plan) {
    return static_cast<double>(plan.ledger.account(MemoryCategory::update_staging).planned);
  };
  CHECK(staging(with("AdamW", 3, 4)) == 0);
  CHECK(staging(with("Lion", 0, 1)) == 0);
  const double tensors = static_cast<double>(spec.declared().params.size());
  CHECK(staging(with("Lamb", 2, 4)) == doctest::Approx(2 * 96 * tensors).epsilon(0.02));
  // Muon: a slice of a block's matrices, the largest owned one, and the memory of its products.
  const double one = 4.0 * 768 * 768 * 4, scratch = 2 * one + 5 * 4.0 * 768 * 768;
  CHECK(staging(with("Muon", 0, 4)) == doctest::Approx(one + scratch).epsilon(0.01));
  CHECK(staging(with("Muon", 3, 4)) < 12.0 * 768 * 768 + 3 * one + scratch);
}

TEST_CASE("Adafactor: vectors have a state, and every rank has the moments of all sides") {
  const zero::ModelSpec spec = models::describe(models::gpt2);
  double vectors = 0, sides = 0;
  for (const auto& param : spec.declared().params)
    if (param.shape.size() < 2)
      vectors += static_cast<double>(param.elements);
    else
      sides += static_cast<double>(param.shape[0] + param.shape[1]);
  zero::Config config = config_for(3, false);
  config.optimizer = zero::optim::default_options("Adafactor");
  const auto planned_of = [&](MemoryCategory category, int ranks, int rank) {
    const zero::MemoryPlan plan = zero::plan_memory(spec, config, ranks, false, rank);
    for (const zero::MemoryUse& use : plan.memory)
      if (use.category == name_of(category)) return static_cast<double>(use.planned);
    return 0.0;
  };
  for (const int n : {1, 4}) {
    CAPTURE(n);
    double states = 0;
    for (int rank = 0; rank < n; ++rank) {
      states += planned_of(MemoryCategory::optimizer_state, n, rank);
      // Exact sums of the sides of the largest unit, and the roots of all sides.
      CHECK(planned_of(MemoryCategory::update_staging, n, rank) ==
            doctest::Approx(96.0 * (50257 + 768) + 4 * sides).epsilon(0.05));
    }
    CHECK(states == doctest::Approx(4 * vectors + n * 4 * sides).epsilon(0.01));
  }
}

TEST_CASE("the other gradient_sync costs what is stated") {
  const zero::ModelSpec spec = models::describe(models::gpt2);
  const auto psi = static_cast<double>(spec.declared().total_elements());
  constexpr int n = 4;
  for (const int stage : {0, 1, 2, 3}) {
    zero::Config config = config_for(stage, true, 3);
    const double automatic = planned(spec, config, n).states();
    config.zero_core.gradient_sync =
        stage < 2 ? zero::GradientSync::each : zero::GradientSync::last;
    const double other = planned(spec, config, n).states();
    // each at 0 and 1: a shard in addition to the whole gradient; last at 2 and 3: the whole
    // gradient instead of a shard.
    const double expected = stage < 2 ? 2 * psi / n : 2 * psi - 2 * psi / n;
    CHECK(std::abs((other - automatic) / expected - 1) < 2e-3);
  }
}

TEST_CASE("gradients at rest take the bytes of their own dtype, and casts a piece of staging") {
  using zero::DType;
  const zero::ModelSpec spec = models::describe(models::gpt2);
  const auto psi = static_cast<double>(spec.declared().total_elements());
  const DType dtypes[] = {DType::fp32, DType::bf16, DType::fp16};
  for (const DType compute : dtypes)
    for (const DType sum : dtypes)
      for (const int m : {1, 3})
        for (const int n : {1, 4})
          for (int stage = 0; stage < 4; ++stage) {
            CAPTURE(name_of(compute));
            CAPTURE(name_of(sum));
            CAPTURE(m);
            CAPTURE(n);
            CAPTURE(stage);
            zero::Config config = config_for(stage, compute == DType::bf16, m);
            config.fp16_enabled = compute == DType::fp16;
            config.grad_accum_dtype = sum;
            const Planned plan = planned(spec, config, n);
            // gradient_sync is last at stages 0 and 1, so sums of several are whole.
            const bool whole = compute == sum ? stage < 2 : stage == 0 || (stage == 1 && m > 1);
            const double gradients =
                static_cast<double>(size_of(sum)) * psi / (whole || n == 1 ? 1 : n);
            const double parameters =
                static_cast<double>(size_of(compute)) * psi / (stage == 3 ? n : 1);
            const double optimizer = (compute == DType::fp32 ? 8 : 12) * psi / (stage > 0 ? n : 1);
            CHECK(std::abs(plan.states() / (parameters + gradients + optimizer) - 1) < 1e-3);
            CHECK((plan.ledger.account(MemoryCategory::gradient_slots).planned > 0) ==
                  (compute != sum || (stage >= 2 && (n > 1 || m > 1))));
            // The reduction reads the sum of micro steps if there is one, otherwise backward's
            // result.
            const bool casts = n > 1 && compute != sum && stage < 2 && m > 1;
            const auto staging = plan.ledger.account(MemoryCategory::communication).planned;
            CHECK((staging > 0) == casts);
          }
}

TEST_CASE("sums that do not depend on the ranks take fp32 at rest, and summands a bucket") {
  const zero::ModelSpec spec = models::describe(models::gpt2);
  const auto psi = static_cast<double>(spec.declared().total_elements());
  for (const bool bf16 : {false, true})
    for (const int n : {1, 4})
      for (int stage = 0; stage < 4; ++stage) {
        CAPTURE(bf16);
        CAPTURE(n);
        CAPTURE(stage);
        zero::Config config = config_for(stage, bf16);
        config.zero_core.rank_independent = true;
        config.batch = {10, 1, 0};
        config.zero_optimization.reduce_bucket_size = 1 << 20;
        const Planned plan = planned(spec, config, n);
        const double width = bf16 ? 2 : 4;
        const double states = width * psi / (stage == 3 ? n : 1) + 4 * psi / (stage == 0 ? 1 : n) +
                              (bf16 ? 12 : 8) * psi / (stage > 0 ? n : 1);
        CHECK(std::abs(plan.states() / states - 1) < 1e-3);
        CHECK(plan.ledger.account(MemoryCategory::gradient_slots).planned > 0);
        // A bucket that is packed to be sent, and one that is received.
        const auto bucket = static_cast<std::int64_t>(width) * (1 << 20);
        CHECK(plan.ledger.account(MemoryCategory::communication).planned ==
              (n == 1 ? 0 : 2 * bucket));
      }
}

TEST_CASE("groups of micro batches take a shard if they stay open, otherwise a block") {
  const zero::ModelSpec spec = models::describe(models::gpt2);
  const auto psi = static_cast<double>(spec.declared().total_elements());
  for (const int stage : {0, 1, 3})
    for (const int n : {1, 4})
      for (const int group : {2, 3, 4, 8})
        for (const int batches : {n, 6 * n}) {
          CAPTURE(stage);
          CAPTURE(n);
          CAPTURE(group);
          CAPTURE(batches);
          zero::Config config = config_for(stage, true);
          config.zero_core.rank_independent = true;
          config.batch = {batches, 1, 0};
          const Planned flat = planned(spec, config, n);
          config.zero_core.rank_independent_group = group;
          const Planned plan = planned(spec, config, n);
          const bool open = n % group != 0 && batches > n;
          CHECK((plan.states() - flat.states()) / psi ==
                doctest::Approx(open ? 4.0 / n : 0).epsilon(1e-3));
          const auto staging = [](const Planned& of) {
            return of.ledger.account(MemoryCategory::communication).planned;
          };
          CHECK(staging(plan) - staging(flat) == (open ? 0 : 4096 * 4));
        }
}

namespace {

// Returns the bytes that a rank sends to ranks of other nodes in a reduction, over two nodes of
// four ranks each, as a multiple of those of one copy of its part of the gradients.
double parts_between_nodes(const zero::ModelSpec& spec, const zero::Config& config) {
  constexpr int ranks = 8, node_ranks = 4;
  const EnginePlan plan(spec.declared(), config, {0, ranks, false, false, {}, node_ranks});
  std::set<int> parts;
  for (const SegmentId& id : plan.layout.segments())
    for (const Route& route : plan.routes.sums(id)) {
      // Ranks of other nodes in the group of the last leg; the first of two stays on the node.
      const int reached = route.legs.size() == 1 ? ranks : route.legs[1].ranks;
      parts.insert(reached - reached * node_ranks / ranks);
    }
  REQUIRE(parts.size() == 1);
  return *parts.begin();
}

}  // namespace

TEST_CASE("if groups are on one node, a sum of each is sent to other nodes") {
  const zero::ModelSpec spec = models::describe(models::gpt2);
  zero::Config config = config_for(2, true);
  config.zero_core.rank_independent = true;
  config.batch = {24, 1, 0};
  for (const auto& [group, parts] : {std::pair{1, 4}, {2, 2}, {4, 1}, {3, 4}, {8, 4}}) {
    CAPTURE(group);
    config.zero_core.rank_independent_group = group;
    CHECK(parts_between_nodes(spec, config) == parts);
  }
}

TEST_CASE("16-bit master weights take no bytes of their own, 16-bit states two each") {
  const zero::ModelSpec spec = models::describe(models::gpt2);
  const auto psi = static_cast<double>(spec.declared().total_elements());
  for (const bool states : {false, true})
    for (const int n : {1, 4})
      for (int stage = 0; stage < 4; ++stage) {
        CAPTURE(n);
        CAPTURE(stage);
        zero::Config config = config_for(stage, true);
        config.bf16_master_weights_and_grads = true;
        config.bf16_optimizer_states = states;
        const Planned plan = planned(spec, config, n);
        CHECK(plan.ledger.account(MemoryCategory::master_weights).planned == 0);
        const double expected = 2 * psi / (stage == 3 ? n : 1) + 2 * psi / (stage >= 2 ? n : 1) +
                                (states ? 4 : 8) * psi / (stage > 0 ? n : 1);
        CHECK(std::abs(plan.states() / expected - 1) < 1e-3);
      }
}

TEST_CASE("the staging of a wire of another dtype is as large as a bucket, at most as a unit") {
  const zero::ModelSpec spec = models::describe(models::gpt2);
  zero::Config config = config_for(2, false);
  config.communication_data_type = zero::DType::bf16;
  const auto staging = [&](int ranks) {
    return planned(spec, config, ranks).ledger.account(MemoryCategory::communication).planned;
  };
  CHECK(staging(1) == 0);
  config.zero_optimization.reduce_bucket_size = 4 * 128 * 1000;
  CHECK(staging(4) == 2 * 4 * 128 * 1000);
  config.zero_optimization.reduce_bucket_size = 500'000'000;
  CHECK(staging(4) / 2e6 == doctest::Approx(50257 * 768 / 1e6).epsilon(1e-3));  // the embedding
  config.communication_data_type = zero::DType::fp32;
  CHECK(staging(4) == 0);
}

TEST_CASE("slot bytes at stage 3 do not depend on depth, with DeepSpeed's default keys too") {
  for (const bool default_keys : {false, true}) {
    zero::Config config = config_for(3, true);
    if (default_keys) {
      config.zero_optimization.prefetch_bucket_size = 50'000'000;
      config.zero_optimization.max_live_parameters = 1'000'000'000;
      config.zero_optimization.max_reuse_distance = 1'000'000'000;
      config.zero_optimization.param_persistence_threshold = 0;
    }
    const std::int64_t shallow = planned(models::describe({12, 768}), config, 4).slots();
    CHECK(planned(models::describe({24, 768}), config, 4).slots() == shallow);
    CHECK(planned(models::describe({96, 768}), config, 4).slots() == shallow);
  }
}

TEST_CASE("elements gathered and reduced are those of the exact form") {
  const zero::ModelSpec spec = models::describe(models::gpt2);
  constexpr int n = 4, k = 2;
  const EnginePlan plan(spec.declared(), config_for(3, false, 3), {0, n});
  // Units by their padded lengths: u_i of the blocks, and units that have a slot to themselves.
  std::int64_t block = 0, alone = 0, tied = 0, all = 0;
  for (const FlatUnit& flat : plan.layout.flat_units) {
    all += flat.elements();
    if (flat.name.starts_with("h."))
      block = flat.elements();
    else if (flat.residence == Residence::held)
      tied += flat.elements();
    else
      alone += flat.elements();
  }
  const auto traffic = [&](const StepPlan& step) { return plan_traffic::of(step, plan.layout); };
  constexpr int layers = 12;
  CHECK(traffic(plan.steps.only).gathered == tied + alone + (2 * layers - k) * block);
  CHECK(traffic(plan.steps.only).gathered / 1e6 == doctest::Approx(195.3).epsilon(0.001));
  CHECK(traffic(plan.steps.only).reduced == all);
  // m = 3: g = 2m, less m for the last k units, less m - 1 for the first k; tied units m.
  const std::int64_t gathered = traffic(plan.steps.first).gathered +
                                traffic(plan.steps.middle).gathered +
                                traffic(plan.steps.last).gathered;
  constexpr int m = 3;
  CHECK(gathered == m * tied + alone + (2 * m * layers - m * k - (m - 1) * k) * block);
  CHECK(traffic(plan.steps.update).gathered == 0);
}

namespace {

// Returns the bytes that gathers and reductions of a rank on two nodes of four ranks each send to
// the other node, in one micro step in bf16. Second copies are gathered inside a node, and so are
// the first hops of reductions.
double sent_between_nodes(const zero::ModelSpec& spec, const zero::Config& config) {
  constexpr int ranks = 8, node_ranks = 4;
  const EnginePlan plan(spec.declared(), config, {0, ranks, false, false, {}, node_ranks});
  std::int64_t bytes = 0;
  for (const Instruction& instruction : plan.steps.only.instructions) {
    if (instruction.op != Op::gather && instruction.op != Op::reduce) continue;
    for (const SegmentId id : plan.layout.segments_of(instruction.target)) {
      const Segment& segment = plan.layout.segment(id);
      zero::comm::wire::Codec codec(zero::comm::wire::Format::none);
      if (instruction.op == Op::reduce)
        codec = plan.wire.reduce;
      else if (segment.encoded)
        codec = plan.wire.gather;
      bytes += zero::comm::wire::encoded_bytes(codec, segment.slice, zero::DType::bf16);
    }
  }
  return static_cast<double>(bytes);
}

zero::Config zero_plus_plus() {
  zero::Config config = config_for(3, true);
  config.zero_optimization.hpz_partition_size = 4;
  config.zero_optimization.quantized_weights = true;
  config.zero_optimization.quantized_gradients = true;
  return config;
}

}  // namespace

TEST_CASE("ZeRO++ in full sends a quarter of stage 3's bytes between nodes") {
  zero::ModelSpec blocks;
  for (int b = 0; b < 48; ++b) blocks.unit("h." + std::to_string(b)).param("w", {1024, 1024});
  const auto ratio = [](const zero::ModelSpec& spec) {
    return sent_between_nodes(spec, zero_plus_plus()) /
           sent_between_nodes(spec, config_for(3, true));
  };
  CHECK(ratio(blocks) < 0.26);
  // GPT-2's tied table is gathered only once, and is not encoded.
  CHECK(ratio(models::describe(models::gpt2)) == doctest::Approx(0.359).epsilon(0.005));
}

TEST_CASE("parameters that are encoded from a shard at stages 1 and 2 take it besides") {
  const zero::ModelSpec spec = models::describe(models::gpt2);
  const auto psi = static_cast<double>(spec.declared().total_elements());
  for (const bool bf16 : {false, true})
    for (const int stage : {1, 2, 3}) {
      zero::Config config = config_for(stage, bf16);
      const double plain = planned(spec, config, 4).states();
      config.zero_core.wire.gather = "int8";
      const double more = planned(spec, config, 4).states() - plain;
      CHECK(more / psi == doctest::Approx(stage == 3 ? 0 : (bf16 ? 2. : 4.) / 4).epsilon(0.01));
    }
}
