// Plans walked on streams that run apart, with a memory that knows what should lie in it: every
// edge whose loss the checker finds also shows as wrong contents in some order of the streams.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/mock_device.h"
#include "tests/support/models.h"
#include "tests/support/plan_walks.h"
#include "zero/plan/engine_plan.h"
#include "zero/run/plan_walker.h"

using namespace zero::detail;
using plan_walks::Moment;
using plan_walks::Walked;

namespace {

// What lies in each slot, and how often each shard was written.
class Memory {
 public:
  Memory(const PlanInputs& inputs, bool empties_each)
      : inputs_(inputs),
        empties_each_(empties_each),
        parameters_(std::size_t(inputs.parameter_slots.slots), Parameter{}),
        gradients_(std::size_t(inputs.gradient_slots.slots), Gradient{}),
        versions_(inputs.layout->flat_units.size(), 0),
        spread_(versions_),
        second_copies_(versions_),
        at_rest_(inputs.layout->flat_units.size(), Written{}),
        on_host_(inputs.layout->flat_units.size(), Written{}),
        chunks_(inputs.layout->flat_units.size(), 0),
        slots_(std::size_t(inputs.offload.state_slots), Slot{}),
        buffers_(std::size_t(inputs.offload.shard_slots), Buffer{}),
        fetched_(std::size_t(inputs.offload.shard_slots), Buffer{}),
        staging_(std::size_t(inputs.gradient_slots.slots), Gradient{}),
        landed_(std::size_t(inputs.gradient_slots.slots), -1),
        turns_(inputs.offload),
        in_file_(inputs.layout->flat_units.size(), Written{}),
        states_(inputs.chunks.size(), 0) {
    for (const Chunk& chunk : inputs.chunks) {
      place_in_unit_.push_back(chunks_[std::size_t(chunk.flat_unit)]);
      ++chunks_[std::size_t(chunk.flat_unit)];
    }
    for (std::size_t f = 0; f < versions_.size() && !inputs.gather_parameters; ++f)
      parameter_of(int(f)) = {int(f), 0};
  }

  std::string fault;

  // Reads take time: at their start and at their end the same must be there, from the latest of the
  // gathers, which are counted by flat unit.
  void read(Op op, int unit, Moment now, const std::vector<int>& gathers) {
    for (const int f : inputs_.layout->needs_of_unit[std::size_t(unit)])
      if (parameter_of(f) !=
          Parameter{f, now.step * chunks_[std::size_t(f)], gathers[std::size_t(f)]})
        complain(op, unit, "finds other parameters");
  }
  void write(Op op, int unit, Moment now) {
    if (op != Op::backward) return;
    for (const int f : inputs_.layout->needs_of_unit[std::size_t(unit)])
      if (gradient_slot(f) >= 0) write_gradient(f, unit, now);
  }
  // So do writes.
  void begin_gather(int f) { parameter_of(f) = {f, torn}; }
  void end_gather(int f, int number) {
    const int version =
        inputs_.spread_after_update ? spread_[std::size_t(f)] : versions_[std::size_t(f)];
    parameter_of(f) = {f, version, number};
    second_copies_[std::size_t(f)] = version;
    if (inputs_.offload.shard_slot(f) < 0) return;
    const Buffer& buffer = buffers_[std::size_t(inputs_.offload.shard_slot(f))];
    parameter_of(f) = {buffer.content.flat, buffer.content.version, number};
    if (buffer.fetch != number) complain(Op::gather, f, "finds what another fetch has brought");
  }
  void end_regather(int f, int number) {
    parameter_of(f) = {f, second_copies_[std::size_t(f)], number};
  }
  void spread(int f, Moment now, bool ends) {
    const int version = versions_[std::size_t(f)];
    if (version != (now.step + 1) * chunks_[std::size_t(f)])
      complain(Op::spread, f, "finds another version");
    spread_[std::size_t(f)] = ends ? version : torn;
  }
  // The unit's fetches, its supplies and its gathers are numbered, for what one brings the next
  // takes.
  void fetch(int f, int number, bool ends) {
    fetched_[std::size_t(inputs_.offload.shard_slot(f))] = {
        {f, ends ? versions_[std::size_t(f)] : torn}, number};
  }
  void supply(int f, int number, bool ends) {
    const auto slot = std::size_t(inputs_.offload.shard_slot(f));
    Buffer from{{f, versions_[std::size_t(f)]}, number};
    if (inputs_.offload.fetches(f)) from = fetched_[slot];
    if (from.fetch != number) complain(Op::supply, f, "finds what another fetch has brought");
    buffers_[slot] = {ends ? from.content : Parameter{f, torn}, number};
  }
  // Of a reduction, or of an addition to the rank's own sum.
  void assign_or_add(Op op, int f, Moment now) {
    Gradient& gradient = gradients_[std::size_t(gradient_slot(f))];
    if (gradient != Gradient{f, written(f, empties_each_ ? now.micro : 0, now)})
      complain(op, f, "finds other gradients");
    Written& sum = at_rest_[std::size_t(f)];
    if (sum.empty() || sum.begin()->step != now.step) sum.clear();
    sum.insert(gradient.by.begin(), gradient.by.end());
    gradient = {};
    landed_[std::size_t(gradient_slot(f))] = f;
  }
  void agree(Moment now) {
    decision_ = now.step;
    for (std::size_t f = 0; f < at_rest_.size(); ++f)
      if (gradient_slot(int(f)) >= 0) require_sum(Op::agree, int(f), now);
  }
  void update(int chunk, Moment now) {
    const int f = inputs_.chunks[std::size_t(chunk)].flat_unit;
    require_sum(Op::update, f, now);
    begin_write(Op::update, chunk, now);
    end_write(chunk);
  }
  // To host memory; at the start and at the end of the copy.
  void download(int f, Moment now, bool ends) {
    require_sum(Op::download, f, now);
    if (inputs_.offload.gradients && landed_[std::size_t(gradient_slot(f))] != f)
      complain(Op::download, f, "finds its slot overwritten");
    for (const Chunk& chunk : inputs_.chunks) {
      if (chunk.flat_unit != f || !chunk.on_host) continue;
      const Written sum = ends ? at_rest_[std::size_t(f)] : Written{};
      if (inputs_.offload.recalls(chunk))
        staging_[std::size_t(gradient_slot(f))] = {f, sum};
      else
        on_host_[std::size_t(f)] = sum;
    }
  }
  void spill(int f, Moment now, bool ends) {
    if (staging_[std::size_t(gradient_slot(f))] != Gradient{f, written(f, 0, now)})
      complain(Op::spill, f, "finds another sum");
    in_file_[std::size_t(f)] = ends ? written(f, 0, now) : Written{};
  }
  void load(Op op, int chunk, Moment now, bool ends) {
    const Chunk& own = inputs_.chunks[std::size_t(chunk)];
    Slot& slot = slot_of(chunk);
    if (op == Op::load) {
      if (!ends && !turns_.begin_load(chunk)) complain(op, chunk, "comes out of turn");
      if (states_[std::size_t(chunk)] != now.step) complain(op, chunk, "finds another state");
      slot = {chunk, ends ? now.step : torn, {}};
    } else if (slot.chunk != chunk || slot.steps != now.step) {
      complain(op, chunk, "finds another chunk");
    }
    if (!inputs_.offload.recalls(own) || (op == Op::load && own.ahead)) return;
    const auto f = std::size_t(own.flat_unit);
    if (in_file_[f] != written(own.flat_unit, 0, now)) complain(op, chunk, "finds another sum");
    slot.gradient = ends ? in_file_[f] : Written{};
  }
  void store(int chunk, Moment now, bool ends) {
    require_stepped(Op::store, chunk, now);
    if (ends) turns_.end_store();
    states_[std::size_t(chunk)] = ends ? now.step + 1 : torn;
    if (inputs_.offload.fetches(inputs_.chunks[std::size_t(chunk)].flat_unit))
      write(Op::store, chunk, now, ends);
  }
  void update_on_host(int chunk, Moment now, bool ends) {
    const Chunk& own = inputs_.chunks[std::size_t(chunk)];
    const OffloadPlan& offload = inputs_.offload;
    if (decision_ != now.step) complain(Op::update_on_host, chunk, "finds another decision");
    require_sum_on_host(Op::update_on_host, chunk, now);
    if (offload.passes_file(own) && !ends && !turns_.begin_update(chunk))
      complain(Op::update_on_host, chunk, "comes out of turn");
    if (offload.passes_file(own) && ends) turns_.end_update();
    if (own.slot >= 0) {
      Slot& slot = slot_of(chunk);
      const bool loaded = slot.chunk == chunk && slot.steps == (ends ? torn : now.step);
      if (offload.passes_file(own) && !loaded)
        complain(Op::update_on_host, chunk, "finds another chunk");
      slot.chunk = chunk;
      slot.steps = ends ? now.step + 1 : torn;
    }
    if (offload.shard_slot(own.flat_unit) >= 0 && !offload.fetches(own.flat_unit))
      write(Op::update_on_host, chunk, now, ends);
  }
  void upload(int chunk, Moment now, bool ends) {
    require_stepped(Op::upload, chunk, now);
    write(Op::upload, chunk, now, ends);
  }

 private:
  static constexpr int torn = -1;

  struct Parameter {
    int flat = -1, version = 0, gather = 0;
    bool operator==(const Parameter&) const = default;
  };
  struct Buffer {
    Parameter content;
    int fetch = 0;
  };
  // One backward scope's contribution.
  struct Write {
    int step, micro, unit;
    auto operator<=>(const Write&) const = default;
  };
  using Written = std::set<Write>;
  struct Slot {
    int chunk = -1, steps = 0;  // that its state has seen
    Written gradient;
  };
  struct Gradient {
    int flat = -1;
    Written by;
    bool operator==(const Gradient&) const = default;
  };

  void require_sum_on_host(Op op, int chunk, Moment now) {
    const Chunk& own = inputs_.chunks[std::size_t(chunk)];
    const Written& found = inputs_.offload.recalls(own) ? slot_of(chunk).gradient
                                                        : on_host_[std::size_t(own.flat_unit)];
    if (found != written(own.flat_unit, 0, now)) complain(op, chunk, "finds another sum");
  }
  // What all users have written in the micro steps from `first` to now.
  Written written(int f, int first, Moment now) const {
    Written all;
    for (int micro = first; micro <= now.micro; ++micro)
      for (const int user : inputs_.layout->flat_units[std::size_t(f)].users)
        all.insert({now.step, micro, user});
    return all;
  }
  void require_stepped(Op op, int chunk, Moment now) {
    const Slot& slot = slot_of(chunk);
    if (slot.chunk != chunk || slot.steps != now.step + 1)
      complain(op, chunk, "finds another chunk");
  }
  Slot& slot_of(int chunk) { return slots_[std::size_t(inputs_.chunks[std::size_t(chunk)].slot)]; }
  void write(Op op, int chunk, Moment now, bool ends) {
    if (ends)
      end_write(chunk);
    else
      begin_write(op, chunk, now);
  }
  // Of a chunk of the parameters at rest; those of a unit come in their order.
  void begin_write(Op op, int chunk, Moment now) {
    const int f = inputs_.chunks[std::size_t(chunk)].flat_unit;
    const int before = now.step * chunks_[std::size_t(f)] + place_in_unit_[std::size_t(chunk)];
    if (versions_[std::size_t(f)] != before) complain(op, chunk, "finds another version");
    const bool first = place_in_unit_[std::size_t(chunk)] == 0;
    if (inputs_.spread_after_update && first && spread_[std::size_t(f)] != before)
      complain(op, chunk, "comes before the last update has been spread");
    if (!inputs_.gather_parameters) parameter_of(f) = {f, torn};
  }
  void end_write(int chunk) {
    const int f = inputs_.chunks[std::size_t(chunk)].flat_unit;
    ++versions_[std::size_t(f)];
    if (inputs_.gather_parameters) return;
    parameter_of(f) = {f, inputs_.gather_after_update ? torn : versions_[std::size_t(f)]};
  }
  int gradient_slot(int f) const { return inputs_.gradient_slots.slot_of[std::size_t(f)]; }
  Parameter& parameter_of(int f) {
    return parameters_[std::size_t(inputs_.parameter_slots.slot_of[std::size_t(f)])];
  }
  void write_gradient(int f, int unit, Moment now) {
    landed_[std::size_t(gradient_slot(f))] = -1;
    Gradient& gradient = gradients_[std::size_t(gradient_slot(f))];
    if (gradient.flat == -1) gradient.flat = f;
    if (gradient.flat != f || (!gradient.by.empty() && gradient.by.begin()->step != now.step) ||
        (empties_each_ && !gradient.by.empty() && gradient.by.begin()->micro != now.micro))
      complain(Op::backward, unit, "overwrites gradients");
    gradient.by.insert({now.step, now.micro, unit});
  }
  void require_sum(Op op, int f, Moment now) {
    if (at_rest_[std::size_t(f)] != written(f, 0, now)) complain(op, f, "finds another sum");
  }
  void complain(Op op, int target, const char* what) {
    if (fault.empty()) fault = std::string(name_of(op)) + " " + std::to_string(target) + " " + what;
  }

  const PlanInputs& inputs_;
  bool empties_each_;
  std::vector<Parameter> parameters_;
  std::vector<Gradient> gradients_;
  std::vector<int> versions_;
  std::vector<int> spread_;         // by flat unit: the version that replicas have from each other
  std::vector<int> second_copies_;  // by flat unit: their version
  std::vector<Written> at_rest_;
  std::vector<Written> on_host_;    // by flat unit
  std::vector<int> chunks_;         // by flat unit
  std::vector<int> place_in_unit_;  // by chunk
  std::vector<Slot> slots_;
  std::vector<Buffer> buffers_;    // of the device
  std::vector<Buffer> fetched_;    // in host memory
  std::vector<Gradient> staging_;  // likewise, by gradient slot
  std::vector<int> landed_;        // by gradient slot: whose reduced gradient lies in it
  plan_walks::Turns turns_;
  std::vector<Written> in_file_;  // by flat unit
  std::vector<int> states_;       // by chunk: the steps that its state in the file has seen
  int decision_ = -1;
};

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

// An instruction without its events: thousands of walks queue copies.
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

// As the engine walks them.
std::string walk(const PlanInputs& inputs, const Step& step, mock::Order order,
                 std::uint64_t seed) {
  const Walked& plans = step.plans;
  mock::Scheduler scheduler(order, seed);
  mock::Stream compute(scheduler), communication(scheduler);
  mock::Stream inbound(scheduler), outbound(scheduler), host(scheduler);
  mock::Stream copies_in(scheduler), copies_out(scheduler);
  const PlanWalker::Streams streams = {&compute, &communication, &inbound,   &outbound,
                                       &host,    &copies_in,     &copies_out};
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
  PlanWalker walker(inputs, streams, clock,
                    {[&](const Instruction& i) {
                       // What takes time, at its start and at its end.
                       const Action action{i.op, i.target};
                       for (const int number = number_of(i); const bool ends : {false, true})
                         streams[std::size_t(stream_of(i.op))]->enqueue(
                             [&memory, action, now, number, ends](zero::Stream) {
                               access(memory, action, {now, number, ends});
                             });
                     },
                     [](const Instruction&) {}, [](int unit) { return std::to_string(unit); }});
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
  int required = 0;
  const auto check = [&](const StepPlan& from) {
    required += plan_walks::check_deletions(
        plan.inputs, step.plans, from, steps, [&](const Walked& without) {
          return walk_in_all_orders(plan.inputs, {without, step.empties_each});
        });
  };
  for (const StepPlan* micro : step.plans.micro_steps) check(*micro);
  check(*step.plans.update);
  CHECK(required >= 5);
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
        if (stage == (sums_fp32 ? 0 : 2)) continue;  // what others show
        zero::Config config = config_of(stage, 3);
        config.bf16_enabled = true;
        config.zero_core.gradient_sync = sync;
        if (sums_fp32) config.grad_accum_dtype = zero::DType::fp32;
        CAPTURE(stage);
        CAPTURE(static_cast<int>(sync));
        CAPTURE(sums_fp32);
        const EnginePlan plan(spec.declared(), config, {0, 2});
        const bool empties = plan.sync_each() || plan.policy.accumulate_locally;
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
      REQUIRE(plan.inputs.second_copies == copies);
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
        if (ratio < 1 && stage == 2) continue;  // what others show
        zero::Config config = config_of(stage, stage == 2 ? 3 : 1);
        config.zero_optimization.offload_optimizer.device = zero::OffloadDevice::cpu;
        config.zero_optimization.offload_optimizer.ratio = ratio;
        config.zero_optimization.offload_optimizer.buffer_count = 3;
        config.zero_core.offload_chunk_bytes = 200'000;
        CAPTURE(ranks);
        CAPTURE(stage);
        CAPTURE(ratio);
        const EnginePlan plan(spec.declared(), config, {0, ranks, true});
        REQUIRE(plan.inputs.offload.on_host);
        REQUIRE(plan.inputs.chunks.size() > plan.layout.flat_units.size());
        const Step plans = stage == 2
                               ? Step{{{&plan.steps.first, &plan.steps.middle, &plan.steps.last},
                                       &plan.steps.update},
                                      plan.sync_each()}
                               : Step{{{&plan.steps.only}, &plan.steps.update}, true};
        check_all_deletions(plan, plans);
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
        if ((ranks == 1) == (stage == 3)) continue;  // what others show
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
        REQUIRE(plan.inputs.offload.on_host);
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
