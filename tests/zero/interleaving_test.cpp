// Step plans over several micro batches: a rank that runs them in another order than one after
// another gets the same bits.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/plan_proof.h"
#include "tests/support/stage_rows.h"
#include "tests/support/toy_model.h"
#include "zero/engine/engine_core.h"
#include "zero/testing.h"

namespace {

using zero::detail::Call;
using zero::detail::HalfPass;
using zero::detail::Op;
using zero::detail::PlanInputs;
using zero::detail::StepPlan;

constexpr int micro_batches = 3, units = 4, width = 37;

using Halves = std::vector<HalfPass>;
constexpr Op F = Op::forward, B = Op::backward;
const Halves gpipe = {{F, 0}, {F, 1}, {F, 2}, {B, 0}, {B, 1}, {B, 2}};
// The order of the last but one stage of a pipeline.
const Halves one_forward_one_backward = {{F, 0}, {F, 1}, {B, 0}, {F, 2}, {B, 1}, {B, 2}};

// A chain of layers y = tanh(x * w); every second layer has a parameter that no kernel uses.
zero::ModelSpec describe() {
  zero::ModelSpec model;
  for (int u = 0; u < units; ++u) {
    zero::UnitSpec& unit = model.unit("layer." + std::to_string(u)).param("w", {width});
    if (u % 2 == 0) unit.param("unused", {5});
  }
  return model;
}

struct Outcome {
  std::vector<double> numbers;  // loss and norm of each step
  std::uint64_t digest = 0;
  bool operator==(const Outcome&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
    for (const double number : outcome.numbers) out << number << " ";
    return out << std::hex << outcome.digest;
  }
};

class Training {
 public:
  Training(zero::Runtime& runtime, const zero::Config& config)
      : core_(runtime.core(), describe(), config), rank_(runtime.rank()) {
    core_.begin_call(Call::initialize);
    core_.weights().initialize(toy::fill);
  }

  const zero::detail::EnginePlan& plan() { return core_.train().plan; }

  // Runs micro steps one after another, or as one list if given.
  Outcome run(const std::optional<Halves>& halves) {
    StepPlan& only = core_.train().plan.steps.only;
    const PlanInputs& inputs = plan().inputs;
    if (halves) only = make_task_plan(inputs, plan().sync_each(), *halves);
    Outcome outcome;
    for (int step = 0; step < 3; ++step) {
      if (halves)
        micro_step(*halves, true);
      else
        for (int batch = 0; batch < micro_batches; ++batch)
          micro_step({{F, batch}, {B, batch}}, batch + 1 == micro_batches);
      const zero::StepResult result =
          zero::detail::result_of(*core_.stepper().step({.mean_over = micro_batches}));
      outcome.numbers.insert(outcome.numbers.end(), {result.loss, result.grad_norm});
    }
    core_.begin_call(Call::digest);
    outcome.digest = core_.weights().digest();
    return outcome;
  }

 private:
  void micro_step(const Halves& halves, bool last) {
    core_.accumulation().begin_micro_step(last);
    for (const auto& [op, batch, run] : halves) op == F ? forward(batch) : backward(batch);
  }

  void forward(int batch) {
    std::vector<std::vector<float>>& x = x_[batch];
    x.assign(1, std::vector<float>(width, 0.3f + 0.1f * static_cast<float>(3 * rank_ + batch)));
    for (int u = 0; u < units; ++u) {
      const std::int64_t scope = core_.scopes().enter(F, u);
      const float* w = value(u);
      std::vector<float> y(width);
      for (int i = 0; i < width; ++i) y[i] = std::tanh(x.back()[i] * w[i]);
      x.push_back(std::move(y));
      core_.scopes().leave({F, u, scope});
    }
    double loss = 0;
    for (const float y : x.back()) loss += double{y} * y / (2 * width);
    core_.accumulation().set_loss(batch, loss);
  }

  void backward(int batch) {
    const std::vector<std::vector<float>>& x = x_[batch];
    std::vector<float> dy = x.back();
    for (int u = units - 1; u >= 0; --u) {
      const std::int64_t scope = core_.scopes().enter(B, u);
      const float* w = value(u);
      auto* dw = static_cast<float*>(core_.scopes().gradient(u, "w", zero::DType::fp32, nullptr));
      for (int i = 0; i < width; ++i) {
        const float d = dy[i] * (1 - x[u + 1][i] * x[u + 1][i]);
        dw[i] += d * x[u][i];
        dy[i] = d * w[i];
      }
      core_.scopes().leave({B, u, scope});
    }
  }

  const float* value(int unit) {
    return static_cast<const float*>(core_.scopes().value(unit, "w", zero::DType::fp32));
  }

  zero::detail::EngineCore core_;
  int rank_;
  std::vector<std::vector<float>> x_[micro_batches];  // of each micro batch, by layer
};

template <class Body>
void for_each_setting(const Body& body) {
  for (const int ranks : {1, 2})
    for (const auto& row : zero::tests::stage_rows())
      for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last}) {
        zero::Config config = toy::config(0, {}, micro_batches);
        row.change(config);
        config.zero_core.gradient_sync = sync;
        CAPTURE(ranks);
        CAPTURE(row.name);
        CAPTURE(static_cast<int>(sync));
        body(ranks, config);
      }
}

}  // namespace

TEST_CASE("micro batches in GPipe's order, and in that of 1F1B, give the bits of the plain order") {
  for_each_setting([](int ranks, const zero::Config& config) {
    zero::testing::run_ranks(ranks, [&](zero::Runtime& runtime) {
      const Outcome plain = Training(runtime, config).run(std::nullopt);
      CHECK(plain.numbers[0] > 0);
      CHECK(Training(runtime, config).run(gpipe) == plain);
      CHECK(Training(runtime, config).run(one_forward_one_backward) == plain);
    });
  });
}

TEST_CASE("plans of interleaved micro batches cannot race, with sums of their own dtype too") {
  const zero::ModelSpec toy_model = toy::describe({});
  for_each_setting([&](int ranks, zero::Config config) {
    for (const bool sums_fp32 : {false, true}) {
      CAPTURE(sums_fp32);
      config.bf16_enabled = sums_fp32;
      if (sums_fp32) config.grad_accum_dtype = zero::DType::fp32;
      const zero::detail::EnginePlan plan(toy_model.declared(), config, {0, ranks});
      for (const Halves& halves : {gpipe, one_forward_one_backward}) {
        const StepPlan only = make_task_plan(plan.inputs, plan.sync_each(), halves);
        CHECK(plan_proof::find_fault(plan.inputs,
                                     {&only, &plan.steps.update, &only, &plan.steps.update}) == "");
        CHECK(plan_proof::find_missing_wait(plan.inputs, only) == "");
      }
    }
  });
}
