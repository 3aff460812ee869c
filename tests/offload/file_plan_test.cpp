// Plans that read and write a file, run on independent streams, with contents that carry their
// version: if the checker finds the loss of an edge, some order of the streams gives wrong
// contents, and vice versa.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <utility>

#include "tests/offload/offload_support.h"
#include "tests/support/mock_device.h"
#include "tests/support/models.h"
#include "tests/support/plan_walks.h"
#include "zero/pass/plan_walker.h"
#include "zero/plan/engine_plan.h"

using namespace zero::detail;
using plan_walks::Moment;
using plan_walks::Walked;

namespace {

constexpr int steps = 3, torn = -1;

// One backward scope's contribution to a gradient.
struct Contribution {
  int step, micro, unit;
  auto operator<=>(const Contribution&) const = default;
};
using Sum = std::set<Contribution>;

// Version of a parameter or state: its owner, and the number of steps.
struct Version {
  int owner = -1, steps = 0;
  bool operator==(const Version&) const = default;
};

// Every access takes time: its input must be valid at its beginning and at its end, and its output
// is invalid in the meantime.
class Memory {
 public:
  Memory(const PlanInputs& inputs, int micro_steps)
      : inputs_(inputs),
        micro_steps_(micro_steps),
        wholes_(std::size_t(inputs.parameter_slots.slots)),
        buffers_(std::size_t(inputs.offload.shard_slots)),
        slots_(std::size_t(inputs.offload.state_slots)),
        turns_(inputs.offload),
        states_(inputs.chunks.size(), 0),
        parameters_(inputs.chunks.size(), 0),
        gradients_(std::size_t(inputs.gradient_slots.slots)),
        sums_(inputs.layout->flat_units.size()) {
    for (std::size_t f = 0; f < sums_.size() && !inputs.policy->parameters_sharded; ++f)
      whole(int(f)) = {int(f), 0};
  }

  std::string fault;

  void access(const Instruction& i, Moment now, bool ends) {
    const int target = i.target;
    switch (i.op) {
      case Op::forward:
      case Op::backward:
        return compute(i, now);
      case Op::agree:
        return agree(i, now, ends);
      case Op::measure:
        return;
      case Op::reduce:
      case Op::accumulate:
        return reduce(i, now, ends);
      case Op::spill:
        require(i, gradient(target).reduced && gradient(target).flat == target);
        sums_[std::size_t(target)].torn = !ends;
        if (ends) assign_or_add(target, now);
        return;
      case Op::fetch:
        require(i, parameters_at_rest(target, now.step));
        buffer(target) = {target, ends ? now.step : torn};
        return;
      case Op::gather:
        return gather(i, now, ends);
      case Op::load:
      case Op::recall:
        return load(i, now, ends);
      case Op::update:
        return update(i, now, ends);
      case Op::store:
        return store(i, now, ends);
      default:
        return require(i, false);  // on GPU ranks
    }
  }

 private:
  struct Gradient {
    int flat = -1;
    Sum by;
    bool reduced = false;
  };
  struct Rest {
    Sum sum;
    bool torn = false;
  };
  struct Slot {
    Version state;
    Sum gradient;
  };

  const Chunk& chunk(int number) const { return inputs_.chunks[std::size_t(number)]; }
  int gradient_slot(int f) const { return inputs_.gradient_slots.slot_of[std::size_t(f)]; }
  Gradient& gradient(int f) { return gradients_[std::size_t(gradient_slot(f))]; }
  Version& whole(int f) {
    return wholes_[std::size_t(inputs_.parameter_slots.slot_of[std::size_t(f)])];
  }
  Version& buffer(int f) { return buffers_[std::size_t(inputs_.offload.shard_slot(f))]; }
  Slot& slot(int number) { return slots_[std::size_t(chunk(number).slot)]; }
  int trained_steps(int f, int step) const { return gradient_slot(f) >= 0 ? step : 0; }
  bool outside(int number) const {
    return inputs_.offload.shard_slot(chunk(number).flat_unit) >= 0;
  }
  // After the ranks agree, sums have another version, since the program may have edited them.
  void agree(const Instruction& i, Moment now, bool ends) {
    for (std::size_t f = 0; f < sums_.size(); ++f) {
      if (gradient_slot(int(f)) < 0) continue;
      sums_[f].torn = false;
      require(i, sum_of(int(f)) == summed(int(f), now));
      sums_[f].torn = !ends;
      if (ends) sums_[f].sum.insert(edit_of(now));
    }
  }
  static Contribution edit_of(Moment now) { return {now.step, now.micro, -1}; }
  Sum edited(int f, Moment now) const {
    Sum all = summed(f, now);
    all.insert(edit_of(now));
    return all;
  }
  Sum summed(int f, Moment now) const {
    Sum all;
    for (int micro = 0; micro < micro_steps_; ++micro)
      for (const int user : plan_walks::users_of(inputs_, f)) all.insert({now.step, micro, user});
    return all;
  }
  Sum sum_of(int f) const {
    const Rest& rest = sums_[std::size_t(f)];
    return rest.torn ? Sum{} : rest.sum;
  }
  bool parameters_at_rest(int f, int step) const {
    for (std::size_t c = 0; c < parameters_.size(); ++c)
      if (inputs_.chunks[c].flat_unit == f && parameters_[c] != step) return false;
    return true;
  }
  void require(const Instruction& i, bool sound) {
    if (!sound && fault.empty())
      fault = std::string(name_of(i.op)) + " " + std::to_string(i.target) + " finds other contents";
  }

  void compute(const Instruction& i, Moment now) {
    for (const int f : inputs_.layout->needs_of_unit[std::size_t(i.target)]) {
      require(i, whole(f) == Version{f, trained_steps(f, now.step)});
      if (i.op != Op::backward || gradient_slot(f) < 0) continue;
      Gradient& g = gradient(f);
      require(i, g.flat == -1 || (g.flat == f && !g.reduced && g.by.begin()->step == now.step &&
                                  g.by.begin()->micro == now.micro));
      g.flat = f;
      g.by.insert({now.step, now.micro, i.target});
    }
  }
  void reduce(const Instruction& i, Moment now, bool ends) {
    Gradient& g = gradient(i.target);
    Sum all;
    for (const int user : plan_walks::users_of(inputs_, i.target))
      all.insert({now.step, now.micro, user});
    require(i, g.flat == i.target && g.by == all);
    if (!ends) return;
    g.reduced = true;
    if (!inputs_.offload.gradients) assign_or_add(i.target, now);
  }
  void assign_or_add(int f, Moment now) {
    Sum& sum = sums_[std::size_t(f)].sum;
    if (now.micro == 0) sum.clear();
    sum.insert(gradient(f).by.begin(), gradient(f).by.end());
    gradient(f) = {};
  }
  void gather(const Instruction& i, Moment now, bool ends) {
    const int f = i.target;
    // A gather in an update brings the version after it, a gather in a micro step the one before
    // this step's update.
    const int step = inputs_.policy->parameters_sharded ? now.step : now.step + 1;
    if (inputs_.offload.shard_slot(f) >= 0)
      require(i, buffer(f) == Version{f, step});
    else
      require(i, gradient_slot(f) < 0 || parameters_at_rest(f, step));
    whole(f) = {f, ends ? trained_steps(f, step) : torn};
  }
  void load(const Instruction& i, Moment now, bool ends) {
    const Chunk& own = chunk(i.target);
    Slot& to = slot(i.target);
    if (i.op == Op::load && !ends) require(i, turns_.begin_load(i.target));
    const bool gradients =
        inputs_.offload.gradients && own.state_in_file && (i.op == Op::recall || !own.ahead);
    if (i.op == Op::load) {
      require(i, states_[std::size_t(i.target)] == now.step);
      require(i, !outside(i.target) || parameters_[std::size_t(i.target)] == now.step);
      to = {{i.target, ends ? now.step : torn}, {}};
    } else {
      require(i, to.state == Version{i.target, now.step});
    }
    if (gradients) require(i, sum_of(own.flat_unit) == edited(own.flat_unit, now));
    if (gradients && ends) to.gradient = sum_of(own.flat_unit);
  }
  void step_state(const Instruction& i, Moment of, bool ends) {
    const Chunk& own = chunk(i.target);
    if (own.slot >= 0 && !ends) require(i, turns_.begin_update(i.target));
    if (own.slot >= 0 && ends) turns_.end_update();
    const bool gradient_in_slot = inputs_.offload.gradients && own.state_in_file;
    require(i, (gradient_in_slot ? slot(i.target).gradient : sum_of(own.flat_unit)) ==
                   edited(own.flat_unit, of));
    if (own.slot >= 0) {
      require(i, slot(i.target).state == Version{i.target, ends ? torn : of.step});
      slot(i.target).state.steps = ends ? of.step + 1 : torn;
    } else {
      states_[std::size_t(i.target)] = ends ? of.step + 1 : torn;
    }
  }
  void update(const Instruction& i, Moment now, bool ends) {
    const auto c = std::size_t(i.target);
    const int flat = chunk(i.target).flat_unit;
    step_state(i, now, ends);
    if (!outside(i.target)) parameters_[c] = ends ? now.step + 1 : torn;
    if (!inputs_.policy->parameters_sharded)
      whole(flat) = {flat, inputs_.gather_after_update ? torn : now.step + 1};
  }
  void store(const Instruction& i, Moment now, bool ends) {
    const auto c = std::size_t(i.target);
    require(i, slot(i.target).state == Version{i.target, now.step + 1});
    if (ends) turns_.end_store();
    states_[c] = ends ? now.step + 1 : torn;
    if (outside(i.target)) parameters_[c] = states_[c];
  }

  const PlanInputs& inputs_;
  int micro_steps_;
  std::vector<Version> wholes_, buffers_;
  std::vector<Slot> slots_;
  plan_walks::Turns turns_;
  std::vector<int> states_, parameters_;  // per chunk: steps of state in the file or at home
  std::vector<Gradient> gradients_;
  std::vector<Rest> sums_;  // per flat unit
};

// `ranking`: the streams in the order in which they run first. CPU ranks have nothing on the last
// four.
using Ranking = std::array<PlanStream, plan_stream_count>;
constexpr Ranking communication_late = {
    PlanStream::compute, PlanStream::inbound,   PlanStream::outbound,  PlanStream::communication,
    PlanStream::host,    PlanStream::copies_in, PlanStream::updates,   PlanStream::copies_out};
constexpr Ranking file_late = {
    PlanStream::compute, PlanStream::communication, PlanStream::inbound,   PlanStream::outbound,
    PlanStream::host,    PlanStream::copies_in,     PlanStream::updates,   PlanStream::copies_out};
constexpr Ranking reads_late = {
    PlanStream::compute, PlanStream::communication, PlanStream::outbound,  PlanStream::inbound,
    PlanStream::host,    PlanStream::copies_in,     PlanStream::updates,   PlanStream::copies_out};

std::string walk(const PlanInputs& inputs, const Walked& plans, const Ranking& ranking,
                 mock::Order order, std::uint64_t seed) {
  mock::Scheduler scheduler(order, seed);
  std::array<std::unique_ptr<mock::Stream>, plan_stream_count> made;
  plan_walks::Streams streams{};
  for (const PlanStream stream : ranking) {
    made[std::size_t(stream)] = std::make_unique<mock::Stream>(scheduler);
    streams[std::size_t(stream)] = made[std::size_t(stream)].get();
  }
  Memory memory(inputs, static_cast<int>(plans.micro_steps.size()));
  StepClock clock;
  Moment now;
  const auto give = [&](const Instruction& i) {
    zero::ExecutionStream& stream = *streams[std::size_t(i.stream)];
    for (const bool ends : {false, true})
      stream.enqueue([&memory, i, now, ends](zero::Stream) { memory.access(i, now, ends); });
  };
  PlanWalker walker(inputs, plan_walks::lanes_of(streams, give), clock, {});
  plan_walks::walk_steps(walker, plans, steps, now, give);
  for (zero::ExecutionStream* stream : streams) stream->synchronize();
  return memory.fault;
}

// In these rankings, in their reversals, and in random ones.
std::string walk_in_all_orders(const PlanInputs& inputs, const Walked& plans) {
  for (const Ranking& ranking : {communication_late, file_late, reads_late})
    for (const auto order : {mock::Order::compute_first, mock::Order::communication_first})
      if (const std::string fault = walk(inputs, plans, ranking, order, 0); !fault.empty())
        return fault;
  for (std::uint64_t seed = 1; seed <= 200; ++seed)
    if (const std::string fault = walk(inputs, plans, file_late, mock::Order::random, seed);
        !fault.empty())
      return fault;
  return "";
}

// A fifth of the deletions, all if ZERO_TESTS_WHOLE is set.
sweep::Part& part() {
  static sweep::Part part(5);
  return part;
}

// Returns the number of required accesses among those of `part()`.
int check_deletions(const PlanInputs& inputs, const Walked& plans, const StepPlan& from) {
  return plan_walks::check_deletions(inputs, plans, from, steps, part(), [&](const Walked& without) {
    return walk_in_all_orders(inputs, without);
  });
}

int count(const StepPlan& plan, Op op) {
  return static_cast<int>(std::count_if(plan.instructions.begin(), plan.instructions.end(),
                                        [&](const Instruction& i) { return i.op == op; }));
}

struct Setting {
  int stage, micro_steps;
  bool parameters, pipelined;
};

zero::Config config_of(const Setting& setting) {
  zero::Config c;
  c.batch.train_micro_batch_size_per_gpu = 1;
  c.batch.gradient_accumulation_steps = setting.micro_steps;
  c.zero_optimization.stage = setting.stage;
  c.zero_core.gradient_sync = zero::GradientSync::each;
  c = offload_support::with_states(c, "/somewhere");
  if (setting.parameters) c = offload_support::with_parameters(c, "/somewhere");
  c.zero_optimization.offload_optimizer.buffer_count = 3;  // two slots
  c.zero_optimization.offload_param.buffer_count = 2;
  if (!setting.pipelined) c.zero_optimization.offload_optimizer.pipeline_read = false;
  return c;
}

}  // namespace

TEST_CASE(
    "every required edge around the file shows when it is missing, in the proof and on streams") {
  const zero::ModelSpec spec = models::describe({2, 20, 50, 16});
  const int least = part().is_whole() ? 5 : 1;
  for (const Setting& s : {Setting{1, 1, false, true},
                           {2, 1, false, true},
                           {3, 1, false, true},
                           {3, 1, true, true},
                           {3, 2, true, true},
                           {2, 1, false, false}}) {
    CAPTURE(s.stage);
    CAPTURE(s.micro_steps);
    CAPTURE(s.parameters);
    CAPTURE(s.pipelined);
    const EnginePlan plan(spec.declared(), config_of(s), {0, 2});
    const StepPlan& last = s.micro_steps == 1 ? plan.steps.only : plan.steps.last;
    CHECK(count(last, Op::load) == (s.pipelined ? 2 : 0));  // a chunk per slot
    CHECK(count(plan.steps.first, Op::load) == 0);
    CHECK(count(last, Op::load) + count(plan.steps.update, Op::load) ==
          static_cast<int>(plan.inputs.chunks.size()));
    Walked plans{{&last}, &plan.steps.update};
    if (s.micro_steps == 2) plans.micro_steps.insert(plans.micro_steps.begin(), &plan.steps.first);
    CHECK(walk_in_all_orders(plan.inputs, plans) == "");
    for (const StepPlan* micro : std::vector(plans.micro_steps))
      CHECK(check_deletions(plan.inputs, plans, *micro) >= least);
    CHECK(check_deletions(plan.inputs, plans, plan.steps.update) >= least);
  }
}

TEST_CASE("the same where a part of the states stays in memory and its parameters do not") {
  const zero::ModelSpec spec = models::describe({2, 20, 50, 16});
  for (const bool cached : {false, true})
    for (const Setting& s : {Setting{3, 1, true, false}, {3, 2, true, false}, {3, 1, true, true}}) {
      CAPTURE(cached);
      CAPTURE(s.micro_steps);
      CAPTURE(s.pipelined);
      zero::Config config = config_of(s);
      if (cached)
        config.zero_core.offload_cache_bytes = 64 << 10;
      else
        config.zero_optimization.offload_optimizer.ratio = 0.5;
      const EnginePlan plan(spec.declared(), config, {0, 2});
      const auto in_file = [](const Chunk& chunk) { return chunk.state_in_file; };
      CHECK(std::ranges::any_of(plan.inputs.chunks, in_file));
      CHECK_FALSE(std::ranges::all_of(plan.inputs.chunks, in_file));
      Walked plans{{s.micro_steps == 1 ? &plan.steps.only : &plan.steps.last}, &plan.steps.update};
      if (s.micro_steps == 2)
        plans.micro_steps.insert(plans.micro_steps.begin(), &plan.steps.first);
      CHECK(walk_in_all_orders(plan.inputs, plans) == "");
      CHECK(check_deletions(plan.inputs, plans, plan.steps.update) >= (part().is_whole() ? 1 : 0));
    }
}

TEST_CASE("a gradient in the file is not read before the ranks agree, nor is anything written") {
  const zero::ModelSpec spec = models::describe({2, 20, 50, 16});
  const EnginePlan plan(spec.declared(), config_of({2, 1, false, true}), {0, 2});
  bool agreed = false;
  for (const StepPlan* steps_of : {&plan.steps.only, &plan.steps.update})
    for (const Instruction& i : steps_of->instructions) {
      agreed |= i.op == Op::agree;
      const bool reads = i.op == Op::recall || (i.op == Op::load && steps_of == &plan.steps.update);
      if (reads || i.op == Op::store || i.op == Op::update) CHECK(agreed);
    }
  CHECK(count(plan.steps.update, Op::recall) == 2);
}
