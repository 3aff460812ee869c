#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "tests/support/models.h"
#include "tests/support/plan_proof.h"
#include "tests/support/refusal.h"
#include "zero/plan/engine_plan.h"
#include "zero/plan/precision.h"

using namespace zero::detail;
using zero::tests::refusal;

namespace {

zero::Config config_for(int stage, int accumulation = 1) {
  zero::Config config;
  config.batch.train_micro_batch_size_per_gpu = 1;
  config.batch.gradient_accumulation_steps = accumulation;
  config.zero_optimization.stage = stage;
  return config;
}

zero::Config random_config(std::mt19937_64& draw) {
  zero::Config config = config_for(static_cast<int>(draw() % 4), 1 + static_cast<int>(draw() % 3));
  config.zero_core.reshard_after_forward = draw() % 3 != 0;
  config.zero_core.gradient_sync = static_cast<zero::GradientSync>(draw() % 3);
  zero::ZeroOptions& options = config.zero_optimization;
  if (draw() % 2) options.prefetch_bucket_size = static_cast<std::int64_t>(draw() % 6000);
  if (draw() % 2) options.max_live_parameters = static_cast<std::int64_t>(draw() % 6000);
  if (draw() % 2) options.max_reuse_distance = static_cast<std::int64_t>(draw() % 3000);
  if (draw() % 2) options.param_persistence_threshold = static_cast<std::int64_t>(draw() % 300);
  return config;
}

// With nine micro batches.
zero::Config random_independent_config(std::mt19937_64& draw) {
  zero::Config config = random_config(draw);
  config.zero_core.rank_independent = true;
  config.zero_core.gradient_sync = zero::GradientSync::automatic;
  config.batch = {9, 1, 0};
  return config;
}

}  // namespace

TEST_CASE("the checker accepts the builder's plans, for random models and settings") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 draw(seed);
    const zero::ModelSpec spec = models::random(seed);
    const zero::Config config = random_config(draw);
    CAPTURE(seed);
    CHECK_NOTHROW(EnginePlan(spec.declared(), config, {0, 1 + static_cast<int>(draw() % 4)}));
  }
}

TEST_CASE("the checker accepts trees of units, and the orders that they show") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 draw(seed);
    std::vector<int> order;
    const zero::ModelSpec spec = models::random_tree(seed, order);
    const zero::Config config = random_config(draw);
    CAPTURE(seed);
    std::optional<EnginePlan> plan;
    CHECK_NOTHROW(plan.emplace(spec.declared(), config, PlanRank{0, 1 + int(draw() % 4)}));
    const std::vector<int> used(order.begin(), order.begin() + draw() % (order.size() + 1));
    CHECK_NOTHROW(plan->learn_order(order, draw() % 2 == 0 ? used : order, draw() % 2 == 0));
  }
}

TEST_CASE("proofs find accesses that are left out, and the checker every misplaced instruction") {
  const zero::ModelSpec spec = models::describe({5, 64, 100, 32});
  const EnginePlan plan(spec.declared(), config_for(3), {0, 2});
  const std::vector<const StepPlan*> sound = {&plan.steps.only, &plan.steps.update,
                                              &plan.steps.only, &plan.steps.update};
  REQUIRE(plan_proof::find_fault(plan.inputs, sound) == "");

  int accesses = 0, found = 0;
  for (std::size_t i = 0; i < plan.steps.only.instructions.size(); ++i)
    for (std::size_t a = 0; a < plan.steps.only.instructions[i].accesses.size(); ++a) {
      StepPlan broken = plan.steps.only;
      auto& left = broken.instructions[i].accesses;
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(a));
      const std::string fault = plan_proof::find_fault(
          plan.inputs, {&broken, &plan.steps.update, &broken, &plan.steps.update});
      ++accesses;
      found += !fault.empty();
    }
  CHECK(accesses > 40);
  // At least a third are found; the other edges are also implied by another access of the same two
  // instructions.
  CHECK(found * 3 > accesses);

  StepPlan early = plan.steps.only;
  const auto reduction = std::find_if(early.instructions.begin(), early.instructions.end(),
                                      [](const Instruction& i) { return i.op == Op::reduce; });
  std::rotate(early.instructions.begin(), reduction, reduction + 1);
  CHECK(plan_proof::find_fault(plan.inputs, {&plan.steps.update, &early}) != "");

  StepPlan without_gather = plan.steps.only;
  std::erase_if(without_gather.instructions,
                [](const Instruction& i) { return i.op == Op::gather && i.target == 2; });
  CHECK(plan_proof::find_fault(plan.inputs, {&without_gather}).find("does not find") !=
        std::string::npos);
}

TEST_CASE(
    "waits order all conflicting accesses of a plan, and a wait that is left out is noticed") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 draw(seed);
    const zero::ModelSpec spec = models::random(seed);
    const EnginePlan plan(spec.declared(), random_config(draw), {0, 1 + int(draw() % 4)});
    CAPTURE(seed);
    for (const StepPlan* each : {&plan.steps.first, &plan.steps.middle, &plan.steps.last,
                                 &plan.steps.only, &plan.steps.late_reductions, &plan.steps.update,
                                 &plan.steps.evaluation_first, &plan.steps.evaluation_next})
      CHECK(plan_proof::find_missing_wait(plan.inputs, *each) == "");
  }
  const zero::ModelSpec spec = models::describe({5, 64, 100, 32});
  const EnginePlan plan(spec.declared(), config_for(3), {0, 2});
  int waits = 0, found = 0;
  for (std::size_t i = 0; i < plan.steps.only.instructions.size(); ++i)
    for (std::size_t w = 0; w < plan.steps.only.instructions[i].after.size(); ++w) {
      StepPlan broken = plan.steps.only;
      auto& after = broken.instructions[i].after;
      after.erase(after.begin() + static_cast<std::ptrdiff_t>(w));
      ++waits;
      found += plan_proof::find_missing_wait(plan.inputs, broken) != "";
    }
  CHECK(waits > 20);
  CHECK(found * 2 > waits);  // the others are implied by waits of instructions before them
}

TEST_CASE("a rank without a batch makes the exchanges of the last micro step, in their order") {
  std::size_t exchanges = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 draw(seed);
    const zero::ModelSpec spec = models::random(seed);
    zero::Config config = random_independent_config(draw);
    const EnginePlan plan(spec.declared(), config, {3, 4});
    CAPTURE(seed);
    CHECK(plan.own_micro_steps() == 2);
    CHECK(plan.batches_in(1) == 4);
    CHECK(plan.batches_in(2) == 1);
    std::vector<std::pair<Op, int>> expected, made;
    for (const Instruction& instruction : plan.steps.last.instructions)
      if (instruction.stream == PlanStream::communication)
        expected.emplace_back(instruction.op, instruction.target);
    for (const Instruction& instruction : plan.steps.without_batch.instructions)
      made.emplace_back(instruction.op, instruction.target);
    CHECK(made == expected);
    exchanges += made.size();
  }
  CHECK(exchanges > 100);
}

TEST_CASE("a micro step that repeats a micro batch has the gathers of a first one, and no sums") {
  std::size_t gathers = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 draw(seed);
    const zero::ModelSpec spec = models::random(seed);
    zero::Config config = random_independent_config(draw);
    CAPTURE(seed);
    CHECK(EnginePlan(spec.declared(), config, {3, 4}).steps.repeated.instructions.empty());
    config.zero_core.recompute_every = 10;
    const EnginePlan plan(spec.declared(), config, {3, 4});
    std::vector<std::pair<Op, int>> expected, made;
    for (const Instruction& instruction : plan.steps.first.instructions)
      if (instruction.op != Op::reduce) expected.emplace_back(instruction.op, instruction.target);
    for (const Instruction& instruction : plan.steps.repeated.instructions) {
      made.emplace_back(instruction.op, instruction.target);
      gathers += instruction.op == Op::gather ? 1 : 0;
    }
    CHECK(made == expected);
  }
  CHECK(gathers > 100);
}

TEST_CASE("the checker finds an instruction of a repeated micro step that changes the step") {
  const zero::ModelSpec spec = models::describe({5, 64, 100, 32});
  zero::Config config = config_for(3);
  config.zero_core.rank_independent = true;
  config.zero_core.recompute_every = 10;
  config.batch = {9, 1, 0};
  const EnginePlan plan(spec.declared(), config, {3, 4});
  zero::detail::StepPlans plans = plan.steps;
  CHECK_NOTHROW(zero::detail::check_plans(plan.inputs, plans));
  CHECK(plan_proof::find_fault(
            plan.inputs, {&plans.first, &plans.without_batch, &plans.repeated, &plans.repeated,
                          &plans.update, &plans.only, &plans.repeated, &plans.update}) == "");
  plans.repeated = plans.first;
  CHECK_THROWS_WITH_AS(zero::detail::check_plans(plan.inputs, plans),
                       doctest::Contains("reduce in it changes the step"), std::logic_error);
  plans.repeated = plan.steps.repeated;
  std::erase_if(plans.repeated.instructions,
                [](const Instruction& instruction) { return instruction.op == Op::gather; });
  CHECK_THROWS_WITH_AS(zero::detail::check_plans(plan.inputs, plans),
                       doctest::Contains("in its slot"), std::logic_error);
}

TEST_CASE("settings under which sums depend on the ranks are refused by name") {
  using zero::Config;
  const std::pair<const char*, void (*)(Config&)> refused[] = {
      {"data_types.grad_accum_dtype", [](Config& c) { c.grad_accum_dtype = zero::DType::bf16; }},
      {"prescale_gradients", [](Config& c) { c.prescale_gradients = true; }},
      {"gradient_predivide_factor", [](Config& c) { c.gradient_predivide_factor = 2; }},
      {"gradient_allreduce_op \"sum\"", [](Config& c) { c.gradient_allreduce_op = "sum"; }},
      {"zero_core.gradient_sync",
       [](Config& c) { c.zero_core.gradient_sync = zero::GradientSync::last; }},
      {"zero_core.shard_group_size", [](Config& c) { c.zero_core.shard_group_size = 2; }},
      {"zero_core.reduce_group_size", [](Config& c) { c.zero_core.reduce_group_size = 2; }},
      {"zero_core.inner_group_size", [](Config& c) { c.zero_core.inner_group_size = 2; }},
      {"zero_core.wire.gather \"int8\"", [](Config& c) { c.zero_core.wire.gather = "int8"; }},
      {"zero_core.wire.reduce \"bf16\"", [](Config& c) { c.zero_core.wire.reduce = "bf16"; }},
      {"zero_optimization.zero_quantized_gradients",
       [](Config& c) { c.zero_optimization.quantized_gradients = true; }},
      {"zero_optimization.zero_quantized_weights",
       [](Config& c) { c.zero_optimization.quantized_weights = true; }},
  };
  const zero::ModelSpec spec = models::describe({1, 4, 9, 5});
  const auto message = [](const zero::ModelSpec& model, const Config& config, bool on_gpu) {
    return refusal<zero::ConfigError>([&] {
      EnginePlan(model.declared(), config, PlanRank{0, 4, on_gpu});
    });
  };
  Config config = config_for(3);
  config.zero_core.rank_independent = true;
  config.batch = {24, 1, 0};
  for (const auto& [key, change] : refused) {
    CAPTURE(std::string(key));
    Config other = config;
    change(other);
    CHECK(message(spec, other, false).starts_with(key));
  }
  CHECK(message(spec, config, true).starts_with("zero_core.deterministic false"));
  Config grouped = config;
  grouped.zero_core.rank_independent_group = 0;
  CHECK(message(spec, grouped, false) ==
        "zero_core.rank_independent_group is 0; expected a number from 1 to 1e+15");
  grouped.zero_core.rank_independent_group = 2;
  CHECK(message(spec, grouped, false).empty());
  grouped.zero_core.rank_independent = false;
  CHECK(message(spec, grouped, false)
            .starts_with("zero_core.rank_independent_group 2 has no effect without "
                         "zero_core.rank_independent"));
  CHECK_NOTHROW(EnginePlan(spec.declared(), config, {0, 4}));
  Config repeating = config;
  repeating.zero_core.recompute_every = 5;
  const PlanRank in_group{.rank = 0, .ranks = 4, .tensor = {0, 2}};
  CHECK(refusal<zero::ConfigError>([&] {
          EnginePlan(spec.declared(), repeating, in_group);
        }).starts_with("zero_core.recompute_every 5 with a tensor group of 2 ranks"));
}

TEST_CASE("in backward the gather of unit i-1 stands before the reduction of unit i+1") {
  const zero::ModelSpec spec = models::describe({6, 64, 100, 32});
  const EnginePlan plan(spec.declared(), config_for(3), {0, 2});
  std::string order;
  bool backward = false;
  for (const Instruction& i : plan.steps.only.instructions) {
    backward |= i.op == Op::backward;
    const bool unit_in_turn = i.stream == PlanStream::communication &&
                              plan.layout.flat_units[std::size_t(i.target)].name.starts_with("h.");
    if (backward && unit_in_turn)
      order += std::string(i.op == Op::gather ? " AG" : " RS") +
               plan.layout.flat_units[std::size_t(i.target)].name.substr(2);
  }
  CHECK(order == " AG3 RS5 AG2 RS4 AG1 RS3 AG0 RS2 RS1 RS0");
}

TEST_CASE("a unit is gathered again only beyond the reuse distance") {
  const zero::ModelSpec spec = models::describe({6, 64, 100, 32});
  const auto planned = [&](std::int64_t distance) {
    zero::Config config = config_for(3);
    config.zero_optimization.max_reuse_distance = distance;
    return EnginePlan(spec.declared(), config, {0, 2});
  };
  const auto gathers = [&](std::int64_t distance) {
    return std::ranges::count(planned(distance).steps.only.instructions, Op::gather,
                              &Instruction::op);
  };
  // The head is between the last block's forward and its backward.
  const EnginePlan plan = planned(0);
  std::int64_t head = 0;
  for (const int flat : plan.layout.needs_of_unit.back())
    head += plan.layout.flat_unit(flat).elements();
  CHECK(gathers(head - 1) == gathers(head) + 1);
}

TEST_CASE("gradients are averaged or summed, and nothing else") {
  zero::Config config = config_for(2);
  config.fp16_enabled = true;
  for (const char* op : {"mean", "sum"}) {
    config.gradient_allreduce_op = op;
    CHECK(precision_for(config, 4).predivision == (op == std::string("mean") ? 4 : 1));
  }
  config.gradient_allreduce_op = "max";
  CHECK_THROWS_WITH_AS(precision_for(config, 4), doctest::Contains("allowed: mean, sum"),
                       zero::ConfigError);
}

TEST_CASE("decay is that of the parameter's group, and betas those of its rule's schedule") {
  zero::ModelSpec spec;
  spec.unit("u").param("w", {3}).param("bias", {3}, {.decay = false});
  zero::Config config = config_for(2);
  config.optimizer.weight_decay = 0.25;
  config.scheduler.type = "OneCycle";
  config.scheduler.cycle_max_lr = 1e-3;
  config.scheduler.cycle_first_step_size = 4;
  const auto scalars = [&](int param, std::int64_t step) {
    const EnginePlan plan(spec.declared(), config, {0, 1});
    zero::optim::StepScalars common;
    common.step = step;
    return plan.updates.scalars(plan.updates.group_of_param()[std::size_t(param)], common, {});
  };
  CHECK(scalars(0, 1).weight_decay == 0.25f);
  CHECK(scalars(1, 1).weight_decay == 0);
  REQUIRE(scalars(0, 2).betas.has_value());
  CHECK(scalars(0, 2).betas->first == doctest::Approx(0.875));
  config.optimizer.type = "SGD";
  CHECK_FALSE(scalars(0, 2).betas.has_value());
}
