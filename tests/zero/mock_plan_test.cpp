// Plans run on independent streams, with a memory that checks its contents: if the checker finds
// the loss of an edge, some order of the streams gives wrong contents.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/support/mock_device.h"
#include "tests/support/models.h"
#include "tests/support/plan_walks.h"
#include "tests/zero/plan_memory.h"
#include "zero/pass/plan_walker.h"
#include "zero/plan/engine_plan.h"

using namespace zero::detail;
using plan_memory::Memory;
using plan_walks::Moment;
using plan_walks::Walked;

namespace {

// The plans of one optimizer step.
struct Step {
  Walked plans;
  bool empties_each;  // no gradient stays in its slot from micro step to micro step
};

constexpr int steps = 3;

struct Point {
  Moment now;
  int number;  // of a fetch, supply or gather
  bool ends;
};

// An instruction without its events, since thousands of walks queue copies.
struct Action {
  Op op;
  int target;
};

void access(Memory& memory, const Action& i, const Point& at) {
  switch (i.op) {
    case Op::download:
      return memory.download(i.target, at.now, at.ends);
    case Op::spill:
      return memory.spill(i.target, at.now, at.ends);
    case Op::load:
    case Op::recall:
      return memory.load(i.op, i.target, at.now, at.ends);
    case Op::store:
      return memory.store(i.target, at.now, at.ends);
    case Op::update:
      return memory.update_streamed(i.target, at.now, at.ends);
    case Op::update_on_host:
      return memory.update_on_host(i.target, at.now, at.ends);
    case Op::upload:
      return memory.upload(i.target, at.now, at.ends);
    case Op::fetch:
      return memory.fetch(i.target, at.number, at.ends);
    case Op::supply:
      return memory.supply(i.target, at.number, at.ends);
    case Op::gather:
      return at.ends ? memory.end_gather(i.target, at.number) : memory.begin_gather(i.target);
    case Op::regather:
      return at.ends ? memory.end_regather(i.target, at.number) : memory.begin_gather(i.target);
    case Op::spread:
      return memory.spread(i.target, at.now, at.ends);
    default:
      if (at.ends) memory.assign_or_add(i.op, i.target, at.now);
  }
}

// Walks them like the engine.
std::string walk(const PlanInputs& inputs, const Step& step, mock::Order order,
                 std::uint64_t seed) {
  const Walked& plans = step.plans;
  mock::Scheduler scheduler(order, seed);
  mock::Stream compute(scheduler), communication(scheduler);
  mock::Stream inbound(scheduler), outbound(scheduler), host(scheduler);
  mock::Stream copies_in(scheduler), copies_out(scheduler), updates(scheduler);
  const plan_walks::Streams streams = {&compute, &communication, &inbound,    &outbound,
                                       &host,    &copies_in,     &copies_out, &updates};
  Memory memory(inputs, step.empties_each);
  StepClock clock;
  Moment now;
  std::vector<int> fetches(inputs.layout->flat_units.size(), 0), supplies = fetches,
                                                                 gathers = fetches;
  const auto number_of = [&](const Instruction& i) {
    if (i.op == Op::fetch) return ++fetches[std::size_t(i.target)];
    if (i.op == Op::supply) return ++supplies[std::size_t(i.target)];
    return fills_slot(i.op) ? ++gathers[std::size_t(i.target)] : 0;
  };
  // Called at the start and at the end of instructions that take time.
  const auto give = [&](const Instruction& i) {
    const Action action{i.op, i.target};
    for (const int number = number_of(i); const bool ends : {false, true})
      streams[std::size_t(i.stream)]->enqueue([&memory, action, now, number, ends](zero::Stream) {
        access(memory, action, {now, number, ends});
      });
  };
  PlanWalker walker(inputs, plan_walks::lanes_of(streams, give), clock, {});
  plan_walks::walk_steps(walker, plans, steps, now, [&](const Instruction& instruction) {
    const Action i{instruction.op, instruction.target};
    compute.enqueue([&memory, i, now, gathers](zero::Stream) {
      if (i.op == Op::agree) return memory.agree(now);
      if (i.op == Op::update) return memory.update(i.target, now);
      memory.read(i.op, i.target, now, gathers);
      memory.write(i.op, i.target, now);
    });
    if (i.op == Op::forward || i.op == Op::backward)
      compute.enqueue(
          [&memory, i, now, gathers](zero::Stream) { memory.read(i.op, i.target, now, gathers); });
  });
  for (zero::ExecutionStream* stream : streams) stream->synchronize();
  return memory.fault;
}

std::string walk_in_all_orders(const PlanInputs& inputs, const Step& plans) {
  for (const auto order : {mock::Order::compute_first, mock::Order::communication_first,
                           mock::Order::one_queue, mock::Order::in_turn})
    if (const std::string fault = walk(inputs, plans, order, 0); !fault.empty()) return fault;
  for (std::uint64_t stream = 0; stream < zero::detail::plan_stream_count; ++stream)
    if (const std::string fault = walk(inputs, plans, mock::Order::one_last, stream);
        !fault.empty())
      return fault;
  for (std::uint64_t seed = 1; seed <= 60; ++seed)
    if (const std::string fault = walk(inputs, plans, mock::Order::random, seed); !fault.empty())
      return fault;
  return "";
}

void check_all_deletions(const EnginePlan& plan, const Step& step) {
  CHECK(walk_in_all_orders(plan.inputs, step) == "");
  static sweep::Part part(7);
  int required = 0;
  const auto check = [&](const StepPlan& from) {
    required += plan_walks::check_deletions(
        plan.inputs, step.plans, from, steps, part, [&](const Walked& without) {
          return walk_in_all_orders(plan.inputs, {without, step.empties_each});
        });
  };
  for (const StepPlan* micro : step.plans.micro_steps) check(*micro);
  check(*step.plans.update);
  CHECK(required >= (part.is_whole() ? 5 : 1));
}

zero::Config config_of(int stage, int micro_steps) {
  zero::Config config;
  config.batch.train_micro_batch_size_per_gpu = 1;
  config.batch.gradient_accumulation_steps = micro_steps;
  config.zero_optimization.stage = stage;
  return config;
}

}  // namespace

TEST_CASE("every required edge of a plan shows when it is missing, in the proof and on streams") {
  const zero::ModelSpec spec = models::describe({5, 64, 100, 32});
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    const EnginePlan plan(spec.declared(), config_of(stage, 1), {0, 2});
    check_all_deletions(plan, {{{&plan.steps.only}, &plan.steps.update}, true});
  }
}

TEST_CASE("the same over several micro steps, with sums of their own dtype too") {
  const zero::ModelSpec spec = models::describe({3, 64, 100, 32});
  for (const int stage : {0, 2, 3})
    for (const auto sync : {zero::GradientSync::each, zero::GradientSync::last})
      for (const bool sums_fp32 : {false, true}) {
        if (stage == (sums_fp32 ? 0 : 2)) continue;  // covered by others
        zero::Config config = config_of(stage, 3);
        config.bf16_enabled = true;
        config.zero_core.gradient_sync = sync;
        if (sums_fp32) config.grad_accum_dtype = zero::DType::fp32;
        CAPTURE(stage);
        CAPTURE(static_cast<int>(sync));
        CAPTURE(sums_fp32);
        const EnginePlan plan(spec.declared(), config, {0, 2});
        const bool empties = plan.sync_each() || plan.policy.accumulates_locally();
        check_all_deletions(
            plan, {{{&plan.steps.first, &plan.steps.middle, &plan.steps.last}, &plan.steps.update},
                   empties});
      }
}

TEST_CASE("the same with slices that are spread over groups, and with second copies") {
  const zero::ModelSpec spec = models::describe({3, 64, 100, 32});
  for (const bool copies : {false, true})
    for (const int micro_steps : {1, 3}) {
      zero::Config config = config_of(3, micro_steps);
      if (copies) config.zero_optimization.hpz_partition_size = 2;
      if (!copies) config.zero_core.shard_group_size = 2;
      config.zero_core.optimizer_over_all_ranks = !copies;
      CAPTURE(copies);
      CAPTURE(micro_steps);
      const EnginePlan plan(spec.declared(), config, {0, 4});
      REQUIRE((plan.policy.second_copy_ranks > 0) == copies);
      REQUIRE(plan.inputs.spread_after_update == !copies);
      const StepPlans& steps = plan.steps;
      check_all_deletions(
          plan, micro_steps == 1
                    ? Step{{{&steps.only}, &steps.update}, true}
                    : Step{{{&steps.first, &steps.middle, &steps.last}, &steps.update}, true});
    }
}

TEST_CASE("the same with state in host memory, all of it or the last chunks alone") {
  const zero::ModelSpec spec = models::describe({3, 64, 100, 32});
  for (const int ranks : {1, 2})
    for (const int stage : {1, 2, 3})
      for (const double ratio : {1., 0.6}) {
        if (ratio < 1 && stage == 2) continue;  // covered by others
        zero::Config config = config_of(stage, stage == 2 ? 3 : 1);
        config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
        config.zero_optimization.offload_optimizer.ratio = ratio;
        config.zero_optimization.offload_optimizer.buffer_count = 3;
        config.zero_core.offload_chunk_bytes = 200'000;
        CAPTURE(ranks);
        CAPTURE(stage);
        CAPTURE(ratio);
        const EnginePlan plan(spec.declared(), config, {0, ranks, true});
        REQUIRE(plan.inputs.offload.updates_on_host);
        REQUIRE(plan.inputs.chunks.size() > plan.layout.flat_units.size());
        const Step plans = stage == 2
                               ? Step{{{&plan.steps.first, &plan.steps.middle, &plan.steps.last},
                                       &plan.steps.update},
                                      plan.sync_each()}
                               : Step{{{&plan.steps.only}, &plan.steps.update}, true};
        check_all_deletions(plan, plans);
      }
}

TEST_CASE("the same with state in host memory that the device steps, and parameters there too") {
  const zero::ModelSpec spec = models::describe({3, 64, 100, 32});
  for (const int ranks : {1, 2})
    for (const int stage : {1, 2, 3})
      for (const bool parameters : {false, true}) {
        if (parameters != (stage == 3) && ranks == 1) continue;  // covered by others
        if (parameters && stage < 3) continue;
        zero::Config config = config_of(stage, stage == 2 ? 2 : 1);
        auto& states = config.zero_optimization.offload_optimizer;
        states.device = zero::OffloadDevice::cpu;
        states.buffer_count = 3;
        states.ratio = parameters ? 1 : 0.8;
        if (stage == 2) states.pipeline_read = states.pipeline_write = false;
        if (parameters) config.zero_optimization.offload_param.device = zero::OffloadDevice::cpu;
        config.zero_core.offload_step = "device";
        config.zero_core.offload_chunk_bytes = 200'000;
        CAPTURE(ranks);
        CAPTURE(stage);
        CAPTURE(parameters);
        const EnginePlan plan(spec.declared(), config, {0, ranks, true});
        REQUIRE(plan.inputs.offload.streams);
        REQUIRE(!plan.inputs.offload.updates_on_host);
        REQUIRE(plan.inputs.offload.state_slots == 2);
        check_all_deletions(
            plan, stage == 2 ? Step{{{&plan.steps.first, &plan.steps.last}, &plan.steps.update},
                                    plan.sync_each()}
                             : Step{{{&plan.steps.only}, &plan.steps.update}, true});
      }
}

TEST_CASE("the same with chunks that the host and the device step in turns") {
  const zero::ModelSpec spec = models::describe({3, 64, 100, 32});
  for (const int ranks : {1, 2})
    for (const int stage : {1, 2, 3})
      for (const bool parameters : {false, true}) {
        if ((ranks == 1) == (stage == 2) || (parameters && stage < 3)) continue;
        zero::Config config = config_of(stage, stage == 2 ? 2 : 1);
        auto& states = config.zero_optimization.offload_optimizer;
        states.device = zero::OffloadDevice::cpu;
        states.buffer_count = 3;
        if (stage == 2) states.pipeline_read = false;
        if (parameters) config.zero_optimization.offload_param.device = zero::OffloadDevice::cpu;
        config.zero_core.offload_step = "both";
        config.zero_core.offload_host_rate = 120e9;
        config.zero_core.offload_chunk_bytes = 200'000;
        if (stage == 1) config.zero_core.offload_keep_bytes = 0;
        CAPTURE(ranks);
        CAPTURE(stage);
        CAPTURE(parameters);
        const EnginePlan plan(spec.declared(), config, {0, ranks, true});
        REQUIRE(plan.inputs.offload.streams);
        REQUIRE(plan.inputs.offload.updates_on_host);
        check_all_deletions(
            plan, stage == 2 ? Step{{{&plan.steps.first, &plan.steps.last}, &plan.steps.update},
                                    plan.sync_each()}
                             : Step{{{&plan.steps.only}, &plan.steps.update}, true});
      }
}

TEST_CASE("the same with parameters in host memory too") {
  const zero::ModelSpec spec = models::describe({3, 64, 100, 32});
  for (const int ranks : {1, 2})
    for (const int buffers : {1, 3}) {
      zero::Config config = config_of(3, ranks == 1 ? 1 : 2);
      config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
      config.zero_optimization.offload_param.device = zero::OffloadDevice::cpu;
      config.zero_optimization.offload_param.buffer_count = buffers;
      config.zero_core.offload_chunk_bytes = 200'000;
      CAPTURE(ranks);
      CAPTURE(buffers);
      const EnginePlan plan(spec.declared(), config, {0, ranks, true});
      REQUIRE(plan.inputs.offload.shard_slots == buffers);
      REQUIRE(plan.inputs.offload.state_slots == 0);
      check_all_deletions(
          plan, ranks == 1 ? Step{{{&plan.steps.only}, &plan.steps.update}, true}
                           : Step{{{&plan.steps.first, &plan.steps.last}, &plan.steps.update},
                                  plan.sync_each()});
    }
}

TEST_CASE("the same with state in a file, through host memory, its chunks on three tiers or one") {
  const zero::ModelSpec spec = models::describe({3, 64, 100, 32});
  for (const int ranks : {1, 2})
    for (const int stage : {1, 2, 3})
      for (const bool mixed : {false, true}) {
        if ((ranks == 1) == (stage == 3)) continue;  // covered by others
        zero::Config config = config_of(stage, mixed && stage == 2 ? 2 : 1);
        auto& states = config.zero_optimization.offload_optimizer;
        states.device = zero::OffloadDevice::nvme;
        states.nvme_path = "/somewhere";
        states.buffer_count = 3;
        if (mixed) states.ratio = 0.8;
        if (mixed) states.pipeline_read = states.pipeline_write = false;
        config.zero_core.offload_chunk_bytes = 200'000;
        if (mixed) config.zero_core.offload_cache_bytes = 500'000;
        CAPTURE(ranks);
        CAPTURE(stage);
        CAPTURE(mixed);
        const EnginePlan plan(spec.declared(), config, {0, ranks, true});
        REQUIRE(plan.inputs.offload.updates_on_host);
        REQUIRE(plan.inputs.offload.in_file);
        const auto in_host = [](const Chunk& chunk) {
          return chunk.on_host && !chunk.state_in_file;
        };
        CHECK(std::any_of(plan.inputs.chunks.begin(), plan.inputs.chunks.end(), in_host) == mixed);
        const Step plans = config.batch.gradient_accumulation_steps == 2
                               ? Step{{{&plan.steps.first, &plan.steps.last}, &plan.steps.update},
                                      plan.sync_each()}
                               : Step{{{&plan.steps.only}, &plan.steps.update}, true};
        check_all_deletions(plan, plans);
      }
}

TEST_CASE("the same with parameters in the file too, in part in host memory") {
  using zero::OffloadDevice;
  const zero::ModelSpec spec = models::describe({3, 64, 100, 32});
  for (const int ranks : {1, 2})
    for (const int kind : {0, 1, 2}) {
      zero::Config config = config_of(3, ranks == 1 ? 1 : 2);
      auto& states = config.zero_optimization.offload_optimizer;
      auto& parameters = config.zero_optimization.offload_param;
      states.device = kind == 1 ? OffloadDevice::cpu : OffloadDevice::nvme;
      parameters.device = kind == 2 ? OffloadDevice::cpu : OffloadDevice::nvme;
      states.nvme_path = parameters.nvme_path = "/somewhere";
      states.buffer_count = 3;
      parameters.buffer_count = ranks == 1 ? 1 : 2;
      parameters.max_in_cpu = kind == 0 && ranks == 2 ? 10'000 : 0;
      config.zero_core.offload_chunk_bytes = 200'000;
      CAPTURE(ranks);
      CAPTURE(kind);
      const EnginePlan plan(spec.declared(), config, {0, ranks, true});
      REQUIRE(plan.inputs.offload.in_file);
      check_all_deletions(
          plan, ranks == 1 ? Step{{{&plan.steps.only}, &plan.steps.update}, true}
                           : Step{{{&plan.steps.first, &plan.steps.last}, &plan.steps.update},
                                  plan.sync_each()});
    }
}
