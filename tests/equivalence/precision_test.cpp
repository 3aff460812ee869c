// Every combination of dtypes: equal bits over stages, and sums in the documented dtypes, checked
// against a plain recomputation from each rank's gradients.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/toy_ranks.h"
#include "zero/testing.h"

using zero::DType;
using zero::GradientSync;

namespace {

struct Dtypes {
  DType compute = DType::fp32;
  std::optional<DType> wire, sum;
  std::string name() const {
    return std::string(name_of(compute)) + " over " + name_of(wire.value_or(compute)) + " into " +
           name_of(sum.value_or(compute));
  }
};

std::vector<Dtypes> all_dtypes() {
  std::vector<Dtypes> all;
  for (const DType compute : {DType::fp32, DType::bf16, DType::fp16})
    for (const DType wire : {DType::fp32, DType::bf16, DType::fp16})
      for (const DType sum : {DType::fp32, DType::bf16, DType::fp16})
        all.push_back({compute, wire, sum});
  return all;
}

// Returns a third of all combinations: with each `number` modulo 3 others, which have each pair of
// the three dtypes. All three numbers together have all combinations.
std::vector<Dtypes> third_of_dtypes(int number) {
  std::vector<Dtypes> third = all_dtypes();
  std::erase_if(third, [number](const Dtypes& d) {
    const auto values = {d.compute, *d.wire, *d.sum};
    int sum = number;
    for (const DType dtype : values) sum += dtype == DType::fp32 ? 0 : dtype == DType::bf16 ? 1 : 2;
    return sum % 3 != 0;
  });
  return third;
}

void set(zero::Config& config, const Dtypes& dtypes) {
  config.bf16_enabled = dtypes.compute == DType::bf16;
  config.fp16_enabled = dtypes.compute == DType::fp16;
  config.communication_data_type = dtypes.wire;
  config.grad_accum_dtype = dtypes.sum;
}

// Stages 0 to 3, then SHARD_GRAD_OP.
constexpr int strategies = 5;
// HYBRID_SHARD and HFSDP, and both without resharding after forward.
constexpr int hybrid_strategies = 4;
void set_hybrid_strategy(zero::Config& config, int strategy, int group) {
  config.zero_optimization.stage = 3;
  config.zero_core.shard_group_size = group;
  config.zero_core.optimizer_over_all_ranks = strategy % 2 == 1;
  config.zero_core.reshard_after_forward = strategy < 2;
}

void set_strategy(zero::Config& config, int strategy) {
  config.zero_optimization.stage = std::min(strategy, 3);
  config.zero_core.reshard_after_forward = strategy != 4;
}

void compare_strategies(int ranks, zero::Config config, int steps) {
  std::optional<toy::Trace> expected;
  for (int strategy = 0; strategy < strategies; ++strategy) {
    CAPTURE(strategy);
    set_strategy(config, strategy);
    const toy::Trace trace =
        toy::train_ranks(ranks, config, steps, strategy % 2 == 0 ? "inline" : "worker");
    if (!expected) expected = trace;
    CHECK(trace == *expected);
  }
  CHECK(std::count_if(expected->norms.begin(), expected->norms.end(),
                      [](double norm) { return std::isfinite(norm); }) >= steps / 2);
}

// Gradients prescribed by the test, of every magnitude that the dtype holds.
float prescribed(int rank, int micro_step, std::int64_t element) {
  const float unit = toy::start_value("gradient", element * 64 + micro_step * 8 + rank, 2.f);
  return unit * std::ldexp(1.f, static_cast<int>(element % 23) - 12);
}

constexpr int elements = 1000;

struct Case {
  Dtypes dtypes;
  int ranks = 1, micro_steps = 1;
  GradientSync sync = GradientSync::last;
  bool prescale = false;
  float predivide = 1;
  bool sums = false;  // over ranks instead of averages
  int group = 0;      // ranks per shard group; 0: all
};

float rounded(float value, DType dtype) {
  if (dtype == DType::bf16) return zero::to_float(zero::from_float<zero::bf16>(value));
  if (dtype == DType::fp16) return zero::to_float(zero::from_float<zero::fp16>(value));
  return value;
}

float divisor_of(const Case& c, DType wire) {
  if (c.ranks == 1 || c.sums) return 1;
  if (c.prescale) return static_cast<float>(c.ranks);
  if (c.predivide != 1) return c.predivide;
  return wire == DType::fp16 ? static_cast<float>(c.ranks) : 1;
}

// accumulated = round_sum(accumulated + round_wire(sum over ranks in fp32)), element by element.
float expected_sum(const Case& c, std::int64_t element) {
  const DType compute = c.dtypes.compute;
  const DType wire = c.dtypes.wire.value_or(compute), sum = c.dtypes.sum.value_or(compute);
  const auto written = [&](int rank, int micro) {
    return rounded(prescribed(rank, micro, element), compute);
  };
  const int group = c.group > 0 ? c.group : c.ranks;
  const auto in_group = [&](int number, auto&& of_rank) {
    float total = 0;
    for (int r = number * group; r < (number + 1) * group; ++r) {
      const float part = rounded(rounded(of_rank(r), wire) / divisor_of(c, wire), wire);
      total = r == number * group ? part : total + part;
    }
    return rounded(total, wire);
  };
  const auto over_groups = [&](auto&& of_group) {
    float total = 0;
    for (int number = 0; number < c.ranks / group; ++number) {
      const float part = rounded(of_group(number), wire);
      total = number == 0 ? part : total + part;
    }
    return rounded(total, wire);
  };
  const auto over_ranks = [&](auto&& of_rank) {
    if (c.ranks == 1) return of_rank(0);
    return over_groups([&](int number) { return in_group(number, of_rank); });
  };
  const auto added_up = [&](auto&& of_micro_step) {
    float accumulated = 0;
    for (int m = 0; m < c.micro_steps; ++m)
      accumulated = rounded(m == 0 ? of_micro_step(m) : accumulated + of_micro_step(m), sum);
    return accumulated;
  };
  if (c.sync == GradientSync::inner && c.micro_steps > 1)
    return rounded(over_groups([&](int number) {
                     return added_up([&](int m) {
                       return in_group(number, [&](int r) { return written(r, m); });
                     });
                   }),
                   sum);
  if (c.sync == GradientSync::last) {
    return rounded(over_ranks([&](int r) {
                     float local = 0;
                     for (int m = 0; m < c.micro_steps; ++m)
                       local = m == 0 ? rounded(written(r, 0), sum)
                                      : rounded(local + written(r, m), sum);
                     return c.micro_steps == 1 ? written(r, 0) : local;
                   }),
                   sum);
  }
  return added_up([&](int m) { return over_ranks([&](int r) { return written(r, m); }); });
}

template <class T>
void write_gradients(zero::Engine& engine, int rank) {
  for (zero::MicroStep micro : engine.micro_steps()) {
    { auto scope = engine.unit("only").forward(); }
    auto scope = engine.unit("only").backward();
    T* grad = scope.grad<T>("w");
    for (int i = 0; i < elements; ++i)
      toy::add(grad, i, rounded(prescribed(rank, micro.index(), i), engine.compute_dtype()));
    micro.loss(0);
  }
  engine.step();
}

std::vector<float> reduced_gradient(const Case& c, int strategy) {
  std::vector<float> result(elements);
  zero::Config config;
  config.batch.train_micro_batch_size_per_gpu = 1;
  config.batch.gradient_accumulation_steps = c.micro_steps;
  config.zero_core.gradient_sync = c.sync;
  config.optimizer.type = "SGD";
  config.prescale_gradients = c.prescale;
  config.gradient_predivide_factor = c.predivide;
  config.gradient_allreduce_op = c.sums ? "sum" : "mean";
  config.loss_scale.loss_scale = 1;
  config.zero_optimization.reduce_bucket_size = 600;  // more than one piece
  set(config, c.dtypes);
  // Parameters are sharded in groups, or groups only sum together.
  const bool sharded_in_groups = c.group > 0 && strategy >= strategies;
  if (c.group > 0) config.zero_core.reduce_group_size = c.group;
  sharded_in_groups ? set_hybrid_strategy(config, strategy - strategies, c.group)
                    : set_strategy(config, strategy);
  zero::testing::run_ranks(c.ranks, [&](zero::Runtime& runtime) {
    zero::ModelSpec model;
    model.unit("only").param("w", {elements});
    zero::Engine engine(runtime, model, config);
    engine.initialize(
        [](zero::ParamShard shard) { std::fill(shard.values.begin(), shard.values.end(), 0.f); });
    switch (c.dtypes.compute) {
      case DType::fp16:
        write_gradients<zero::fp16>(engine, runtime.rank());
        break;
      case DType::bf16:
        write_gradients<zero::bf16>(engine, runtime.rank());
        break;
      default:
        write_gradients<float>(engine, runtime.rank());
    }
    std::vector<float> whole(elements);
    engine.read("only.w", "grad", whole);
    if (runtime.is_root()) result = whole;
  });
  return result;
}

void check_sums(const Case& c) {
  const int all = strategies + (c.group > 0 ? hybrid_strategies : 0);
  const double scale = static_cast<double>(divisor_of(c, c.dtypes.wire.value_or(DType::fp32))) /
                       ((c.sums ? 1 : c.ranks) * c.micro_steps);
  std::vector<float> expected(elements);
  for (int i = 0; i < elements; ++i)
    expected[static_cast<std::size_t>(i)] = expected_sum(c, i) * static_cast<float>(scale);
  for (int strategy = 0; strategy < all; ++strategy) {
    INFO(c.dtypes.name() << ", " << c.ranks << " ranks, " << c.micro_steps << " micro steps, "
                         << (c.sync == GradientSync::each    ? "each"
                             : c.sync == GradientSync::inner ? "inner"
                                                             : "last")
                         << ", groups of " << c.group << ", strategy " << strategy << ", divisor "
                         << divisor_of(c, c.dtypes.wire.value_or(c.dtypes.compute)));
    const bool equal = reduced_gradient(c, strategy) == expected;
    CHECK(equal);
  }
}

}  // namespace

TEST_CASE("gradients are summed with the promised roundings") {
  for (const Dtypes& dtypes : all_dtypes())
    for (const int ranks : {1, 3})
      for (const auto& [micro_steps, sync] :
           {std::pair{1, GradientSync::last}, {3, GradientSync::last}, {3, GradientSync::each}})
        check_sums({dtypes, ranks, micro_steps, sync});
}

TEST_CASE("sums are taken in groups first at every strategy, with the promised roundings") {
  int group = 2, number = 0;
  for (const auto& [micro_steps, sync] : {std::pair{1, GradientSync::inner},
                                          {3, GradientSync::last},
                                          {3, GradientSync::each},
                                          {3, GradientSync::inner}})
    for (const Dtypes& dtypes : third_of_dtypes(number++)) {
      group = 5 - group;
      check_sums({dtypes, 6, micro_steps, sync, false, 1, false, group});
    }
}

TEST_CASE("prescaled and predivided gradients are divided on the wire, before they are summed") {
  for (const DType wire : {DType::fp32, DType::bf16, DType::fp16})
    for (const DType compute : {DType::fp32, DType::fp16}) {
      check_sums({{compute, wire, std::nullopt}, 3, 2, GradientSync::each, true, 1});
      check_sums({{compute, wire, std::nullopt}, 3, 2, GradientSync::last, false, 4});
      check_sums({{compute, wire, DType::fp32}, 4, 1, GradientSync::last, false, 4});
    }
}

TEST_CASE("gradients that are summed over ranks are not divided, on the wire neither") {
  for (const DType wire : {DType::fp32, DType::bf16, DType::fp16})
    for (const int ranks : {1, 3})
      check_sums({{DType::fp16, wire, std::nullopt}, ranks, 2, GradientSync::each, true, 4, true});
}

TEST_CASE("equal bits at every stage for every combination of dtypes") {
  int number = 0;
  for (const int ranks : {1, 3})
    for (const auto& [micro_steps, sync] :
         {std::pair{1, GradientSync::last}, {3, GradientSync::last}, {3, GradientSync::each}})
      for (const Dtypes& dtypes : third_of_dtypes(number++)) {
        INFO(dtypes.name() << ", " << ranks << " ranks, " << micro_steps << " micro steps");
        zero::Config config = toy::config(0, {}, micro_steps);
        config.zero_core.gradient_sync = sync;
        config.zero_optimization.reduce_bucket_size = 1000;
        set(config, dtypes);
        compare_strategies(ranks, config, 6);
      }
}

TEST_CASE("fp16 with its default wire and sums trains the same at 1 to 4 ranks") {
  for (const int ranks : {1, 2, 3, 4})
    for (const int micro_steps : {1, 3}) {
      CAPTURE(ranks);
      zero::Config config = toy::config(0, {}, micro_steps);
      config.zero_core.gradient_sync = GradientSync::each;
      config.zero_core.reduce_group_size = 2;
      set(config, {DType::fp16, std::nullopt, std::nullopt});
      compare_strategies(ranks, config, 20);
    }
}
