// Pipelines: a model whose units are given to stages has the bits of the model on one stage, at
// every ZeRO stage, schedule and number of ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/plan_proof.h"
#include "tests/support/refusal.h"
#include "tests/support/stage_rows.h"
#include "tests/support/staged_chain.h"
#include "tests/support/temporary_directory.h"
#include "zero/plan/pipeline.h"
#include "zero/plan/schedule_choice.h"
#include "zero/runtime/runtime_core.h"
#include "zero/testing.h"

namespace {

using staged::config_of;
using staged::describe;
using staged::Outcome;
using staged::schedule_named;
using staged::Training;
using staged::Variant;
using zero::tests::contains;
using zero::tests::TemporaryDirectory;

std::string refusal(const std::function<void()>& call) {
  return zero::tests::refusal<zero::Error>(call);
}

// Two units that pass on one number for each of as many values as the micro batch has: its index
// plus 1 of them, or 40 of the first.
namespace messages {

zero::ModelSpec describe() {
  zero::ModelSpec model;
  model.unit("in").param("w", {7}).output();
  model.unit("head").param("w", {7}).fused();
  return model;
}

void write(const std::vector<float>& values, std::byte* memory) {
  if (memory != nullptr) std::memcpy(memory, values.data(), values.size() * sizeof(float));
}

std::span<const float> numbers(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// Without stages the program passes on what it has itself.
void run(const zero::Task& task, std::vector<float>& passed, std::vector<float>& gradient) {
  const int index = task.micro_step().index();
  const std::size_t count = index == 0 ? 40 : index + 1;
  if (task.is_forward()) {
    auto scope = task.unit().forward();
    passed.assign(count, 0);
    for (std::size_t i = 0; i < count; ++i)
      passed[i] = scope.value<float>("w")[i % 7] * static_cast<float>(index + 2);
    write(passed, scope.output_bytes(count * sizeof(float)));
    return;
  }
  auto scope = task.unit().backward();
  float* dw = scope.grad<float>("w");
  if (task.unit().name() == "in") {
    const auto sent = numbers(scope.output_gradient_bytes());
    const std::span<const float> dy = sent.empty() ? gradient : sent;
    CHECK(dy.size() == count);
    for (std::size_t i = 0; i < count; ++i) dw[i % 7] += dy[i] * static_cast<float>(index + 2);
    return;
  }
  const auto sent = numbers(scope.input_bytes());
  const std::span<const float> x = sent.empty() ? passed : sent;
  CHECK(x.size() == count);
  gradient.assign(count, 0);
  double loss = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float w = scope.value<float>("w")[i % 7], scale = task.micro_step().loss_scale();
    loss += 0.5 * double{x[i]} * x[i] * w;
    dw[i % 7] += 0.5F * scale * x[i] * x[i];
    gradient[i] = scale * x[i] * w;
  }
  task.micro_step().loss(loss);
  write(gradient, scope.input_gradient_bytes(count * sizeof(float)));
}

std::uint64_t train(zero::Runtime& runtime, int zero_stage) {
  zero::Config config = config_of(3);
  config.zero_optimization.stage = zero_stage;
  zero::Engine engine(runtime, describe(), config);
  engine.initialize([](zero::ParamShard shard) { std::ranges::fill(shard.values, 0.3F); });
  std::vector<float> passed, gradient;
  for (int step = 0; step < 3; ++step) {
    for (const zero::Task task : engine.tasks()) run(task, passed, gradient);
    engine.step();
  }
  return engine.digest();
}

}  // namespace messages

// Runs on stages x data ranks, and returns the outcome of the last stage's first data rank.
Outcome train(int stages, int data_ranks, const zero::Config& config, bool by_tasks = true,
              const Variant& variant = {}, const char* executor = "auto") {
  Outcome outcome;
  zero::testing::run_ranks(stages * data_ranks,
                           [&](zero::Runtime& runtime) {
                             const Outcome own =
                                 Training(runtime, config, variant).begin().run(3, by_tasks);
                             if (runtime.pipeline_stage() + 1 == stages && runtime.rank() == 0)
                               outcome = own;
                           },
                           {.executor = executor, .pipeline_stages = stages});
  return outcome;
}

std::vector<std::int64_t> weight_of_stages(const std::vector<std::int64_t>& weights,
                                           const std::vector<int>& first, int stages) {
  std::vector<std::int64_t> sums(stages, 0);
  for (int unit = 0, run = 0; unit < std::ssize(weights); ++unit) {
    if (run + 1 < std::ssize(first) && first[run + 1] == unit) ++run;
    sums[run % stages] += weights[unit];
  }
  return sums;
}

std::vector<int> first_units(const zero::ModelSpec& model, const std::string& partition,
                             int stages) {
  zero::PipelineOptions options;
  options.partition = partition;
  return zero::detail::first_units(model.declared(), options, stages);
}

// Returns the name and the chunks that the schedule "best" stands for with units of this work.
// `tied`: units that use a parameter of the first.
std::pair<std::string, int> best_of(const std::vector<std::int64_t>& work, int stages,
                                    int micro_batches, const zero::PipelineOptions& given = {},
                                    const std::vector<std::size_t>& tied = {}) {
  zero::ModelSpec model;
  for (std::size_t unit = 0; unit < work.size(); ++unit) {
    auto& declared =
        model.unit("unit" + std::to_string(unit)).param("w" + std::to_string(unit), {7});
    declared.work(work[unit]);
    if (unit + 1 < work.size()) declared.output({4});
    if (std::ranges::count(tied, unit) > 0) declared.uses("unit0.w0");
  }
  const auto chosen = zero::detail::best_schedule(model.declared(), given, stages, micro_batches);
  CHECK(chosen.reason.empty() == (stages == 1 || given.chunks > 1));
  return {chosen.schedule, chosen.chunks};
}

}  // namespace

TEST_CASE("the best schedule has the fewest runs within 2 % of the shortest step") {
  const std::vector<std::int64_t> equal(16, 1'000'000);
  using Choice = std::pair<std::string, int>;
  // Steps of 120, 108, 102 and 99 units' forward passes for 1, 2, 4 and 8 runs.
  CHECK(best_of(equal, 2, 4) == Choice{"interleaved", 8});
  CHECK(best_of(equal, 2, 200) == Choice{"1f1b", 1});
  CHECK(best_of(equal, 1, 4) == Choice{"1f1b", 1});
  // The heavy unit is alone in its stage, which no further cut makes lighter.
  std::vector<std::int64_t> heavy = equal;
  heavy.back() = 20'000'000;
  CHECK(best_of(heavy, 2, 32) == Choice{"1f1b", 1});
  zero::PipelineOptions given;
  given.chunks = 3;
  CHECK(best_of(equal, 2, 4, given) == Choice{"interleaved", 3});
  given = {};
  given.partition = "[0, 8]";
  CHECK(best_of(equal, 2, 4, given) == Choice{"1f1b", 1});
  // Any number of runs gives both tied units to the first stage, in two of them.
  CHECK(best_of(equal, 2, 4, {}, {8}) == Choice{"1f1b", 1});
  // Two runs of a stage use the parameter of the first unit, which lies there or in another stage.
  CHECK(best_of(equal, 2, 4, {}, {5, 13}) == Choice{"1f1b", 1});
}

TEST_CASE("stages have equal numbers of parameters, or of units") {
  const zero::ModelSpec model = describe();
  CHECK(first_units(model, "uniform", 3) == std::vector{0, 2, 4});
  // 209 elements are in the table, 38 or 57 in a layer, 19 in the head.
  CHECK(first_units(model, "parameters", 2) == std::vector{0, 2});
  CHECK(first_units(model, "parameters", 7) == std::vector{0, 1, 2, 3, 4, 5, 6});
  CHECK_THROWS_WITH(first_units(model, "parameters", 8),
                    doctest::Contains("the model has 7 units"));
  CHECK(zero::cut_evenly(std::vector<std::int64_t>{5, 1, 1, 5, 0}, 3) == std::vector{0, 1, 3});
  // Runs of 4, 3, 3 and the heavy unit alone.
  const std::vector<std::int64_t> heavy_end{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5};
  CHECK(zero::cut_evenly(heavy_end, 2, 2).size() == 4);
  CHECK(weight_of_stages(heavy_end, zero::cut_evenly(heavy_end, 2, 2), 2) ==
        std::vector<std::int64_t>{7, 8});
  CHECK_THROWS_WITH(zero::cut_evenly(std::vector<std::int64_t>{5}, 2),
                    doctest::Contains("1 units for 2 stages"));
}

TEST_CASE("a pipeline has the bits of one stage, at every ZeRO stage and schedule") {
  struct Grid {
    int stages, data_ranks;
  };
  for (const auto& row : zero::tests::stage_rows())
    for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last})
      for (const bool bf16 : {false, true}) {
        zero::Config config = config_of(5);
        row.change(config);
        config.zero_core.gradient_sync = sync;
        config.bf16_enabled = bf16;
        CAPTURE(row.name);
        CAPTURE(static_cast<int>(sync));
        CAPTURE(bf16);
        std::map<int, Outcome> plain;
        for (const int data_ranks : {1, 2}) {
          plain[data_ranks] = train(1, data_ranks, config, false);
          CHECK(plain[data_ranks].numbers[0] > 0);
          CHECK(train(1, data_ranks, config) == plain[data_ranks]);
        }
        for (const char* schedule : {"gpipe", "1f1b", "interleaved", "breadth_first", "best"})
          for (const auto& [stages, data_ranks] : {Grid{2, 1}, {2, 2}, {3, 1}, {4, 1}}) {
            config.pipeline = schedule_named(schedule);
            if (stages * config.pipeline.chunks > staged::layers + 2) continue;
            config.pipeline.partition = stages == 3 ? "uniform" : "parameters";
            CAPTURE(schedule);
            CAPTURE(stages);
            CAPTURE(data_ranks);
            CHECK(train(stages, data_ranks, config) == plain[data_ranks]);
          }
      }
}

TEST_CASE("rank_independent: any stages and data ranks have the bits of one rank") {
  struct Grid {
    int stages, data_ranks;
  };
  for (const int zero_stage : {0, 1, 2, 3})
    for (const int micro_batches : {5, 8})
      for (const int group : {1, 2})
        for (const bool bf16 : {false, true}) {
          zero::Config config = config_of(0);
          config.batch.train_batch_size = micro_batches * staged::samples;
          config.zero_optimization.stage = zero_stage;
          config.zero_core.rank_independent = true;
          config.zero_core.rank_independent_group = group;
          config.zero_core.verify_every = 2;
          config.bf16_enabled = bf16;
          CAPTURE(zero_stage);
          CAPTURE(micro_batches);
          CAPTURE(group);
          CAPTURE(bf16);
          const Outcome plain = train(1, 1, config, false);
          CHECK(train(1, 3, config, false) == plain);
          for (const auto& [stages, data_ranks] :
               {Grid{1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 1}, {2, 3}}) {
            const bool runs = stages > 1 && group == 2;
            config.pipeline =
                schedule_named(micro_batches == 5 ? (runs ? "interleaved" : "1f1b")
                                                  : (runs ? "breadth_first" : "gpipe"));
            CAPTURE(stages);
            CAPTURE(data_ranks);
            CHECK(train(stages, data_ranks, config) == plain);
          }
        }
}

TEST_CASE("stages of fp16 skip a step together; frozen stages send no gradient back") {
  zero::Config config = config_of(2);
  config.zero_optimization.stage = 2;
  config.fp16_enabled = true;
  config.loss_scale = toy::overflowing_config(2, {}).loss_scale;
  const Outcome plain = train(1, 1, config, false);
  CHECK(train(2, 1, config) == plain);
  CHECK(train(3, 1, config) == plain);
  config.pipeline = schedule_named("interleaved");
  CHECK(train(2, 1, config) == plain);
  config.fp16_enabled = false;
  const Variant frozen{.frozen_table = true};
  CHECK(train(3, 1, config, true, frozen) == train(1, 1, config, false, frozen));
  config.pipeline = {};
  const Outcome without_table = train(1, 2, config, false, frozen);
  config.pipeline.partition = "uniform";
  CHECK(train(7, 1, config, true, frozen) == train(1, 1, config, false, frozen));
  CHECK(train(2, 2, config, true, frozen) == without_table);
}

// Each use's gradients are summed over the micro batches, and then the sums of the uses.
TEST_CASE("a parameter that stages share has the same bits however the stages are cut") {
  const Variant tied{.tied = true};
  for (const bool bf16 : {false, true})
    for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last})
      for (const int data_ranks : {1, 2}) {
        std::optional<Outcome> first;
        for (const auto& row : zero::tests::stage_rows()) {
          zero::Config config = config_of(3);
          row.change(config);
          config.bf16_enabled = bf16;
          config.zero_core.gradient_sync = sync;
          CAPTURE(row.name);
          CAPTURE(bf16);
          CAPTURE(static_cast<int>(sync));
          CAPTURE(data_ranks);
          const Outcome two = train(2, data_ranks, config, true, tied);
          if (!first) first = two;
          CHECK(two == *first);
          if (data_ranks == 1) {
            CHECK(train(3, 1, config, true, tied) == two);
            config.pipeline.partition = "uniform";
            CHECK(train(4, 1, config, true, tied) == two);
            config.pipeline = schedule_named(bf16 ? "interleaved" : "breadth_first");
            CHECK(train(2, 1, config, true, tied) == two);
          }
          const Outcome plain = train(1, data_ranks, config, false, tied);
          for (std::size_t i = 0; i < plain.numbers.size(); ++i)
            CHECK(two.numbers[i] == doctest::Approx(plain.numbers[i]).epsilon(bf16 ? 1e-2 : 1e-5));
          CHECK(two.numbers != train(2, data_ranks, config).numbers);
        }
      }
}

TEST_CASE("checkpoints of any grid load on any other") {
  struct Grid {
    int stages, data_ranks;
    const char* schedule = "1f1b";
  };
  const auto config_on = [](const Grid& grid) {
    zero::Config config = config_of(4);
    config.zero_optimization.stage = 3;
    config.bf16_enabled = true;
    config.pipeline = schedule_named(grid.schedule);
    return config;
  };
  const Grid grids[] = {{1, 1}, {2, 1, "interleaved"}, {2, 2}, {3, 1}};
  const Variant tied{.tied = true};
  for (const Grid& saves : grids)
    for (const Grid& loads : grids) {
      const TemporaryDirectory directory;
      std::uint64_t saved = 0, loaded = 0;
      zero::testing::run_ranks(
          saves.stages * saves.data_ranks,
          [&](zero::Runtime& runtime) {
            Training training(runtime, config_on(saves), tied);
            training.begin().run(2);
            training.engine().save_checkpoint(directory / "saves", {.rank_state = "r"}).wait();
            const std::uint64_t digest = training.engine().digest();
            if (runtime.core().world_rank() == 0) saved = digest;
          },
          {.pipeline_stages = saves.stages});
      zero::testing::run_ranks(loads.stages * loads.data_ranks,
                               [&](zero::Runtime& runtime) {
                                 Training training(runtime, config_on(loads), tied);
                                 const auto resumed = training.engine().resume(directory / "saves");
                                 CHECK(resumed->step == 2);
                                 CHECK(std::ssize(resumed->rank_states) == saves.data_ranks);
                                 const std::uint64_t digest = training.engine().digest();
                                 if (runtime.core().world_rank() == 0) loaded = digest;
                                 training.run(1);
                               },
                               {.pipeline_stages = loads.stages});
      CAPTURE(saves.stages);
      CAPTURE(loads.stages);
      CHECK(loaded == saved);
    }
}

TEST_CASE("all ranks read and write the parameters of all stages") {
  zero::testing::run_ranks(
      4,
      [](zero::Runtime& runtime) {
        zero::Config config = config_of(2);
        config.zero_optimization.stage = 3;
        Training training(runtime, config, {.tied = true});
        training.begin().run(1);
        zero::Engine& engine = training.engine();
        for (const char* name : {"in.table", "layer.4.w", "head.gain"}) {
          std::vector<float> values(
              std::string(name) == "in.table" ? staged::vocabulary * staged::width : staged::width);
          engine.read(name, "exp_avg", values);
          CHECK(runtime.sum(std::abs(values[1])) == runtime.size() * double{std::abs(values[1])});
          for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25f * float(i % 7);
          engine.write(name, values);
          std::vector<float> now(values.size());
          engine.read(name, "value", now);
          CHECK(now == values);
        }
        const std::string other = runtime.pipeline_stage() == 0 ? "head" : "in";
        CHECK(contains(refusal([&] { engine.unit(other); }), "another stage"));
        CHECK(contains(refusal([&] { engine.export_model("x"); }), "zero checkpoint export"));
        CHECK(contains(refusal([&] { engine.begin_micro_step(); }), "Engine::tasks()"));
      },
      {.pipeline_stages = 2});
}

TEST_CASE("stages keep their state in files, with the bits of memory") {
  for (const int number : {1, 3}) {
    const TemporaryDirectory directory;
    zero::Config config = config_of(3);
    config.zero_optimization.stage = number;
    config.bf16_enabled = true;
    const Outcome plain = train(1, 2, config);
    config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::nvme;
    config.zero_optimization.offload_optimizer.nvme_path = directory.path().string();
    if (number == 3) {
      config.zero_optimization.offload_param.device = zero::OffloadDevice::nvme;
      config.zero_optimization.offload_param.nvme_path = directory.path().string();
    }
    CHECK(train(2, 2, config) == plain);
    config.pipeline = schedule_named(number == 1 ? "breadth_first" : "interleaved");
    CHECK(train(2, 2, config) == plain);
  }
}

TEST_CASE("random delays change no bit of a pipeline") {
  zero::Config config = config_of(4);
  config.zero_optimization.stage = 3;
  const Outcome plain = train(1, 1, config);
  for (const char* schedule : {"1f1b", "interleaved"}) {
    config.pipeline = schedule_named(schedule);
    zero::testing::inject_delays(7, 300);
    const Outcome delayed = train(3, 1, config), inlined = train(3, 1, config, true, {}, "inline");
    zero::testing::inject_delays(0, 0);
    CHECK(delayed == plain);
    CHECK(inlined == plain);
  }
}

TEST_CASE("stages send messages of the program's sizes, cut once ranks are there") {
  const zero::ModelSpec whole = messages::describe();
  CHECK(first_units(whole, "uniform", 2) == std::vector{0, 1});
  CHECK(contains(refusal([&] { first_units(whole, "[0, 1]", 1); }),
                 "pipeline.partition is [0, 1]; expected the first unit of each of 1 stages"));
  const auto digest_of = [](int stages, int zero_stage) {
    std::uint64_t digest = 0;
    zero::testing::run_ranks(stages, [&](zero::Runtime& runtime) {
      runtime.cut_into_stages(stages);
      CHECK(runtime.pipeline_stages() == stages);
      CHECK(runtime.size() == 1);
      CHECK(runtime.sum(1, zero::Over::all_ranks) == stages);
      const std::uint64_t own = messages::train(runtime, zero_stage);
      if (runtime.world_rank() == 0) digest = own;
    });
    return digest;
  };
  for (const int zero_stage : {0, 3}) CHECK(digest_of(2, zero_stage) == digest_of(1, zero_stage));
  const std::string alive = refusal([] {
    zero::testing::run_ranks(2, [](zero::Runtime& runtime) {
      const zero::Engine engine(runtime, describe(), config_of(2));
      runtime.cut_into_stages(2);
    });
  });
  CHECK(contains(alive, "while 1 engines exist"));
}

TEST_CASE("what cannot be in a pipeline is refused by name") {
  const auto on_two_stages = [](const zero::ModelSpec& model, zero::Config config = config_of(2)) {
    return refusal([&] {
      zero::testing::run_ranks(
          2, [&](zero::Runtime& runtime) { zero::Engine(runtime, model, config); },
          {.pipeline_stages = 2});
    });
  };
  const auto says = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(contains(text, part));
  };
  zero::ModelSpec unfinished = describe();
  unfinished.unit("after the head");
  says(on_two_stages(unfinished), "head declares none: add UnitSpec::output()");
  zero::Config offloads = config_of(2);
  offloads.zero_optimization.stage = 2;
  offloads.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
  says(on_two_stages(describe({.tied = true}), offloads),
       "offload_optimizer does not go with in.table");
  zero::Config rank_independent = config_of(0);
  rank_independent.batch = {};
  rank_independent.batch.train_batch_size = 4 * staged::samples;
  rank_independent.batch.train_micro_batch_size_per_gpu = staged::samples;
  rank_independent.zero_core.rank_independent = true;
  says(on_two_stages(describe({.tied = true}), rank_independent),
       "zero_core.rank_independent does not go with in.table");
  rank_independent.zero_core.recompute_every = 2;
  says(on_two_stages(describe(), rank_independent),
       "zero_core.recompute_every 2 with a pipeline of 2 stages");
  zero::Config runs = config_of(2);
  runs.pipeline.chunks = 2;
  says(on_two_stages(describe(), runs),
       "zero_core.pipeline.chunks is 2 with the schedule 1f1b, which has one run of units for each "
       "stage");
  runs.pipeline = {.schedule = "interleaved"};
  says(on_two_stages(describe(), runs), "the schedule interleaved, which needs 2 or more");
  runs.pipeline.chunks = 4;
  says(on_two_stages(describe(), runs),
       "the model has 7 units, and pipeline.stages (RuntimeOptions::pipeline_stages) is 2, each of "
       "4 runs (zero_core.pipeline.chunks): at least one unit is needed for each");
  runs.pipeline = schedule_named("interleaved");
  zero::ModelSpec shares;
  for (const char* name : {"a", "b", "c"})
    shares.unit(name).param(std::string("w"), {4}).output({4});
  shares.unit("d").uses("b.w").fused();
  says(on_two_stages(shares, runs),
       "zero_core.pipeline.chunks gives two runs of a stage units that share b.w");
  says(refusal([] { zero::testing::run_ranks(3, [](zero::Runtime&) {}, {.pipeline_stages = 2}); }),
       "pipeline.stages (RuntimeOptions::pipeline_stages) is 2, which does not divide 3 ranks");
}

TEST_CASE("plans of stages cannot race, and plan the memory that is taken") {
  for (const auto& row : zero::tests::stage_rows())
    for (const int stages : {2, 3, 6})
      for (int stage = 0; stage < std::min(stages, 3); ++stage) {
        zero::Config config = config_of(5);
        row.change(config);
        const zero::ModelSpec model = describe();
        const std::vector<int> first = first_units(model, "parameters", stages);
        if (stages == 6) config.pipeline = schedule_named("interleaved");
        const zero::detail::AxisPlace place{stage, std::min(stages, 3)};
        const zero::detail::Model own = zero::detail::stage_of(model.declared(), first, place);
        const zero::detail::EnginePlan plan(own, config, {.rank = 0, .ranks = 2, .pipe = place});
        const auto& tasks = plan.steps.tasks;
        CHECK(plan_proof::find_fault(
                  plan.inputs, {&tasks, &plan.steps.update, &tasks, &plan.steps.update}) == "");
        CHECK(plan_proof::find_missing_wait(plan.inputs, tasks) == "");
      }
  for (const char* schedule : {"1f1b", "interleaved", "breadth_first"})
    zero::testing::run_ranks(4,
                             [schedule](zero::Runtime& runtime) {
                               zero::Config config = config_of(5);
                               config.zero_optimization.stage = 3;
                               config.pipeline = schedule_named(schedule);
                               Training training(runtime, config);
                               training.begin().run(1);
                               const zero::RankReport report = training.engine().rank_report();
                               for (const zero::MemoryUse& use : report.memory)
                                 CHECK(use.planned == use.peak);
                             },
                             {.pipeline_stages = 2});
}
