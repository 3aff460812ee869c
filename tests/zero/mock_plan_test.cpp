// Plans walked on streams that run apart, with a memory that knows what should lie in it: every
// edge whose loss the checker finds also shows as wrong contents in some order of the streams.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/support/mock_device.h"
#include "tests/support/models.h"
#include "zero/plan/engine_plan.h"
#include "zero/plan/plan_checker.h"
#include "zero/plan/plan_walker.h"

using namespace zero::detail;

namespace {

// A walk's place: the optimizer step, and the micro step in it.
struct Moment {
  int step = 0, micro = 0;
};

// What lies in each slot, and how often each shard was written.
class Memory {
 public:
  Memory(const PlanInputs& inputs, bool empties_each)
      : inputs_(inputs),
        empties_each_(empties_each),
        parameters_(std::size_t(inputs.parameter_slots.slots), Parameter{}),
        gradients_(std::size_t(inputs.gradient_slots.slots), Gradient{}),
        versions_(inputs.layout->flat_units.size(), 0),
        at_rest_(inputs.layout->flat_units.size(), Written{}) {
    for (std::size_t f = 0; f < versions_.size() && !inputs.gather_parameters; ++f)
      parameter_of(int(f)) = {int(f), 0};
  }

  std::string fault;

  // Reads take time: at their start and at their end the same must be there.
  void read(Op op, int unit, Moment now) {
    for (const int f : inputs_.layout->needs_of_unit[std::size_t(unit)])
      if (parameter_of(f) != Parameter{f, gradient_slot(f) >= 0 ? now.step : 0})
        complain(op, unit, "finds other parameters");
  }
  void write(Op op, int unit, Moment now) {
    if (op != Op::backward) return;
    for (const int f : inputs_.layout->needs_of_unit[std::size_t(unit)])
      if (gradient_slot(f) >= 0) write_gradient(f, unit, now);
  }
  // So do writes.
  void begin_gather(int f) { parameter_of(f) = {f, torn}; }
  void end_gather(int f) { parameter_of(f) = {f, versions_[std::size_t(f)]}; }
  // Of a reduction, or of an addition to the rank's own sum.
  void take_in(Op op, int f, Moment now) {
    Gradient& gradient = gradients_[std::size_t(gradient_slot(f))];
    if (gradient != Gradient{f, written(f, empties_each_ ? now.micro : 0, now)})
      complain(op, f, "finds other gradients");
    Written& sum = at_rest_[std::size_t(f)];
    if (sum.empty() || sum.begin()->step != now.step) sum.clear();
    sum.insert(gradient.by.begin(), gradient.by.end());
    gradient = {};
  }
  void agree(Moment now) {
    for (std::size_t f = 0; f < at_rest_.size(); ++f)
      if (gradient_slot(int(f)) >= 0) require_sum(Op::agree, int(f), now);
  }
  void update(int chunk, Moment now) {
    const int f = inputs_.chunks[std::size_t(chunk)].flat_unit;
    require_sum(Op::update, f, now);
    ++versions_[std::size_t(f)];
    if (inputs_.gather_parameters) return;
    parameter_of(f) = {f, inputs_.gather_after_update ? torn : versions_[std::size_t(f)]};
  }

 private:
  static constexpr int torn = -1;

  struct Parameter {
    int flat = -1, version = 0;
    bool operator==(const Parameter&) const = default;
  };
  // One backward scope's contribution.
  struct Write {
    int step, micro, unit;
    auto operator<=>(const Write&) const = default;
  };
  using Written = std::set<Write>;
  struct Gradient {
    int flat = -1;
    Written by;
    bool operator==(const Gradient&) const = default;
  };

  // What all users have written in the micro steps from `first` to now.
  Written written(int f, int first, Moment now) const {
    Written all;
    for (int micro = first; micro <= now.micro; ++micro)
      for (const int user : inputs_.layout->flat_units[std::size_t(f)].users)
        all.insert({now.step, micro, user});
    return all;
  }
  int gradient_slot(int f) const { return inputs_.gradient_slots.slot_of[std::size_t(f)]; }
  Parameter& parameter_of(int f) {
    return parameters_[std::size_t(inputs_.parameter_slots.slot_of[std::size_t(f)])];
  }
  void write_gradient(int f, int unit, Moment now) {
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
  std::vector<Written> at_rest_;
};

// The plans of one optimizer step.
struct Step {
  std::vector<const StepPlan*> micro_steps;
  const StepPlan* update;
  bool empties_each;  // no gradient stays in its slot from micro step to micro step
};

constexpr int steps = 3;

// As the engine walks them.
std::string walk(const PlanInputs& inputs, const Step& plans, mock::Order order,
                 std::uint64_t seed) {
  mock::Scheduler scheduler(order, seed);
  mock::Stream compute(scheduler), communication(scheduler);
  Memory memory(inputs, plans.empties_each);
  StepClock clock;
  Moment now;
  // Nothing rests in a file here.
  PlanWalker walker(
      inputs, {&compute, &communication, &communication, &communication}, clock,
      {[&](const Instruction& i) {
         if (i.op == Op::gather)
           communication.enqueue([&memory, i](zero::Stream) { memory.begin_gather(i.target); });
         communication.enqueue([&memory, i, now](zero::Stream) {
           i.op == Op::gather ? memory.end_gather(i.target) : memory.take_in(i.op, i.target, now);
         });
       },
       [](const Instruction&) {}, [](int unit) { return std::to_string(unit); }});
  const auto run = [&](const StepPlan& plan) {
    walker.begin(plan);
    while (const Instruction* next = walker.next_compute()) {
      const Instruction i = *next;
      walker.enter(i.op, i.target);
      // The engine awaits gradient slots at the first touch.
      for (const Wait& wait : i.waits)
        if (wait.event.kind == EventKind::gradient_free && i.op == Op::backward)
          walker.await(wait.event);
      compute.enqueue([&memory, i, now](zero::Stream) {
        if (i.op == Op::agree) return memory.agree(now);
        if (i.op == Op::update) return memory.update(i.target, now);
        memory.read(i.op, i.target, now);
        memory.write(i.op, i.target, now);
      });
      if (i.op == Op::forward || i.op == Op::backward)
        compute.enqueue([&memory, i, now](zero::Stream) { memory.read(i.op, i.target, now); });
      walker.leave(i.op, i.target);
    }
    walker.finish();
  };
  const auto last = static_cast<int>(plans.micro_steps.size()) - 1;
  for (now.step = 0; now.step < steps; ++now.step) {
    for (now.micro = 0; now.micro <= last; ++now.micro)
      run(*plans.micro_steps[static_cast<std::size_t>(now.micro)]);
    now.micro = last;
    run(*plans.update);
  }
  compute.synchronize();
  communication.synchronize();
  return memory.fault;
}

std::string walk_in_all_orders(const PlanInputs& inputs, const Step& plans) {
  for (const auto order : {mock::Order::compute_first, mock::Order::communication_first})
    if (const std::string fault = walk(inputs, plans, order, 0); !fault.empty()) return fault;
  for (std::uint64_t seed = 1; seed <= 80; ++seed)
    if (const std::string fault = walk(inputs, plans, mock::Order::random, seed); !fault.empty())
      return fault;
  return "";
}

std::string proof_of(const PlanInputs& inputs, const Step& plans) {
  std::vector<const StepPlan*> sequence;
  for (int step = 0; step < steps; ++step) {
    sequence.insert(sequence.end(), plans.micro_steps.begin(), plans.micro_steps.end());
    sequence.push_back(plans.update);
  }
  return find_plan_fault(inputs, sequence);
}

// With each wait of one plan of the step taken out in turn.
void check_deletions(const PlanInputs& inputs, const Step& plans, const StepPlan& from,
                     int& required) {
  for (std::size_t i = 0; i < from.instructions.size(); ++i)
    for (std::size_t w = 0; w < from.instructions[i].waits.size(); ++w) {
      StepPlan broken = from;
      broken.instructions[i].waits.erase(broken.instructions[i].waits.begin() +
                                         static_cast<std::ptrdiff_t>(w));
      Step without = plans;
      for (const StepPlan*& plan : without.micro_steps)
        if (plan == &from) plan = &broken;
      if (without.update == &from) without.update = &broken;
      const std::string proof = proof_of(inputs, without);
      const std::string seen = walk_in_all_orders(inputs, without);
      CAPTURE(from.name);
      CAPTURE(proof);
      CAPTURE(seen);
      CAPTURE(i);
      CAPTURE(w);
      CHECK(proof.empty() == seen.empty());
      required += !proof.empty();
    }
}

void check_all_deletions(const EnginePlan& plan, const Step& plans) {
  CHECK(walk_in_all_orders(plan.inputs, plans) == "");
  int required = 0;
  for (const StepPlan* micro : plans.micro_steps)
    check_deletions(plan.inputs, plans, *micro, required);
  check_deletions(plan.inputs, plans, *plans.update, required);
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
    const EnginePlan plan(spec.declared(), config_of(stage, 1), 0, 2);
    check_all_deletions(plan, {{&plan.steps.only}, &plan.steps.update, true});
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
        const EnginePlan plan(spec.declared(), config, 0, 2);
        const bool empties = plan.sync_each || plan.policy.accumulate_locally;
        check_all_deletions(plan, {{&plan.steps.first, &plan.steps.middle, &plan.steps.last},
                                   &plan.steps.update,
                                   empties});
      }
}
