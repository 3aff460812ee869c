#include "zero/pass/scopes.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <utility>

#include "zero/base/text.h"
#include "zero/state/array_exchange.h"

namespace zero::detail {

Scopes::Scopes(TrainState& train, CallGuard& guard, PlanWalker& walker, OrderLearner& learner,
               HiddenMemory& hidden, StepClock& clock, StepScalars& scalars)
    : train_(train),
      guard_(guard),
      walker_(walker),
      learner_(learner),
      hidden_(hidden),
      clock_(clock),
      scalars_(scalars),
      recomputation_(train),
      free_(train, walker, [this](int flat) { complete_and_forget(flat); }),
      free_evaluation_(train, walker, [](int) {}),
      losses_(train.plan.losses_per_rank(), 0),
      touched_(train_.model.params.size(), 0),
      ever_touched_(train_.model.params.size(), 0),
      open_ranges_(2 * train_.model.units.size()) {}

void Scopes::check_order(int index) const {
  const int done = ended_micro_steps();
  const int own = own_micro_steps();
  if (done == own)
    throw UsageError(
        "Engine::micro_steps() was begun again before Engine::step(): call step() once, after " +
        (own == 1 ? "the micro step" : "all " + std::to_string(own) + " micro steps"));
  if (index != done)
    throw UsageError("micro step " + std::to_string(index) + " was begun where micro step " +
                     std::to_string(done) + " of " + std::to_string(own) +
                     " comes next; run every element of Engine::micro_steps(), in order");
}

int Scopes::begin_micro_step(bool last) {
  const int index = begun_micro_steps();
  const bool counted = train_.plan.rank_independent();
  if (counted && index == own_micro_steps()) {
    if (!more_repeats())
      throw UsageError("Engine::begin_micro_step() was called after all " + std::to_string(index) +
                       " micro batches that this rank has in a step with "
                       "zero_core.rank_independent; call Engine::step()");
    const int next = index + recomputation_.repeats();
    start_repeated(next, no_loop);
    return next;
  }
  start_micro_step(index, no_loop,
                   counted ? index + 1 == accumulation() : last || !train_.plan.accumulates);
  return index;
}

void Scopes::start_micro_step(int index, std::int64_t pass, bool last) {
  end_open_micro_step();
  guard_.require(Call::micro_step);
  train_.require_values("");
  const bool after_last = index > 0 && train_.last_micro_step && pass == no_loop;
  if (after_last && (!train_.model.any_micro_steps || !train_.plan.completes_each()))
    throw UsageError(accumulation() == 1
                         ? "Engine::begin_micro_step() was called again before Engine::step(), "
                           "and gradient_accumulation_steps is 1; set it to 2 or more"
                         : "Engine::begin_micro_step() was called after the last micro step of a "
                           "step; call Engine::step()");
  if (pass != no_loop) check_order(index);
  check_replicas(train_);
  if (index == 0) {
    begin_losses();
    recomputation_.begin_step();
    more_after_last_ = false;
    clock_.start(train_.step + 1);
  }
  more_after_last_ = more_after_last_ || after_last;
  if (index == 0 || train_.plan.empties_gradients())
    std::fill(touched_.begin(), touched_.end(), char{0});
  pass_ = pass;
  train_.micro_step = index;
  train_.last_micro_step = last;
  loss_given_ = false;
  micro_loss_ = 0;
  forward_.clear();
  guard_.enter<Call::micro_step, Phase::micro_step>();
  if (learner_.waits())
    learner_.begin();
  else
    walker_.begin(plan_of_micro_step());
  slots_changed_ = false;
  recomputation_.begin_own(index);
}

bool Scopes::more_repeats() {
  if (!recomputation_.due() || begun_micro_steps() != own_micro_steps()) return false;
  end_open_micro_step();
  guard_.require(Call::more_micro_steps);
  return guard_.or_poison([&] { return recomputation_.goes_on(); });
}

// The gradients go nowhere, so the micro steps and the losses of the step are unchanged.
void Scopes::start_repeated(int index, std::int64_t pass) {
  const int next = own_micro_steps() + recomputation_.repeats();
  if (recomputation_.repeating() && index == next - 1) return;
  if (index != next || !more_repeats()) check_order(index);
  std::ranges::fill(touched_, char{0});
  pass_ = pass;
  loss_given_ = false;
  forward_.clear();
  guard_.enter<Call::micro_step, Phase::micro_step>();
  walker_.begin(train_.plan.steps.repeated);
  recomputation_.begin_repeated();
}

void Scopes::begin_losses() {
  loss_sum_ = 0;
  std::ranges::fill(losses_, 0);
  losses_missing_ = 0;
  free_micro_steps_ = 0;
  scalars_.begin_losses();
}

void Scopes::end_learning() {
  if (!learner_.active()) return;
  backward_ = learn_order(train_.last_micro_step);
  slots_changed_ = used_order_ != train_.plan.inputs.order;
  walker_.begin(backward_);
}

StepPlan Scopes::learn_order(bool last) {
  std::vector<int> order = learner_.finish();
  used_order_ = learner_.used();
  return train_.plan.learn_order(std::move(order), used_order_, last);
}

void Scopes::end_open_micro_step() {
  if (guard_.phase() != Phase::micro_step) return;
  guard_.refuse_after_failure("the micro step cannot end");
  guard_.or_poison([&] {
    resume_micro_step();
    end_learning();
    if (free_.active())
      end_free_micro_step();
    else
      walker_.finish();
    while (agrees_on_leaving() && someone_leaves(false)) {
      begin_free_micro_step();
      end_free_micro_step();
    }
    if (train_.micro_step + 1 == own_micro_steps() && own_micro_steps() < accumulation())
      serve_last_micro_step();
  });
  if (!recomputation_.repeating()) {
    if (!loss_given_) ++losses_missing_;
    ++micro_steps_done_;
  }
  recomputation_.end_micro_step();
  guard_.enter<Call::micro_step, Phase::between_steps>();
}

// Takes part in the exchanges of the last micro step, in which this rank has no micro batch.
void Scopes::serve_last_micro_step() {
  guard_.require_same(Call::micro_step);
  ++train_.micro_step;
  train_.last_micro_step = true;
  const StepPlans& plans = train_.plan.steps;
  walker_.begin(std::exchange(slots_changed_, false) ? plans.only_without_batch
                                                     : plans.without_batch);
  walker_.finish();
}

void Scopes::refuse_among_micro_steps(const char* call) const {
  if (guard_.phase() == Phase::micro_step || micro_steps_done_ != 0)
    throw UsageError(
        std::string(call) +
        " was called among the micro steps of a step; it belongs after Engine::step()");
}

void Scopes::end_accumulation(std::optional<double> mean_over) {
  const bool counted = pass_ != no_loop || train_.plan.rank_independent();
  const int done = ended_micro_steps();
  if (counted ? done != own_micro_steps() : done == 0)
    throw UsageError("Engine::step() was called after " + std::to_string(done) + " of " +
                     std::to_string(own_micro_steps()) +
                     " micro steps; run every element of Engine::micro_steps()");
  if (more_repeats())
    throw UsageError(
        "Engine::step() was called before the micro batches of zero_core.recompute_every were "
        "repeated: loop over Engine::micro_steps(), or begin micro steps while "
        "Engine::more_micro_steps() returns true, or as many as Engine::micro_batches() lists");
  if (mean_over && train_.plan.rank_independent())
    throw UsageError(
        "StepOptions::mean_over was set with zero_core.rank_independent, whose means are over the "
        "micro batches of all ranks: leave it out");
  if (mean_over && !(*mean_over > 0 && std::isfinite(*mean_over)))
    throw UsageError("StepOptions::mean_over is " + std::to_string(*mean_over) +
                     "; expected a positive number");
  train_.losses = mean_over.value_or(done);
  micro_steps_done_ = free_micro_steps_ = 0;
  name_unasked_gradients();
  name_missing_losses();
}

bool Scopes::reduce_late() {
  if (train_.last_micro_step) return more_after_last_;
  train_.last_micro_step = true;
  walker_.begin(train_.plan.steps.late_reductions);
  walker_.finish();
  return true;
}

std::int64_t Scopes::enter(Op op, int unit) {
  const std::int64_t scope = ++scopes_;
  guard_.refuse_after_failure("a scope was opened");
  const Phase phase = guard_.phase();
  if (op == Op::forward && phase == Phase::full_model) return scope;
  if (op == Op::forward && phase == Phase::full_model_elsewhere)
    throw UsageError("forward of unit " + unit_name(unit) + ": rank " +
                     std::to_string(train_.rank()) +
                     " does not hold the full model; see Engine::materialize(only_rank)");
  if (phase != Phase::micro_step && !(phase == Phase::evaluation && op == Op::forward))
    throw UsageError(std::string(name_of(op)) + " of unit " + unit_name(unit) +
                     " was called outside Engine::micro_steps()" +
                     (op == Op::forward ? " and Engine::evaluate()" : ""));
  guard_.or_poison([&] {
    if (phase == Phase::micro_step) resume_micro_step();
    if (op == Op::backward) end_learning();
    if (!learner_.active() && !free_pass().active() && train_.model.any_order &&
        walker_.leaves_plan(op, unit))
      leave_plan(op, unit);
    if (free_pass().active())
      free_pass().enter(op, unit, scope);
    else if (learner_.active())
      learner_.enter(unit, scope);
    else
      walker_.enter(op, unit, scope);
    if (op == Op::forward && phase == Phase::micro_step) forward_.push_back(unit);
    for (const int f : train_.layout().needs_of_unit[unit]) hidden_.show_parameters(f);
    open_ranges_[2 * unit + (op == Op::backward)].emplace(train_.runtime, op, unit_name(unit));
    doing_.push_back({scope, {StepClock::Activity::kernels, op, unit}});
    clock_.turn_to(doing_.back().second);
  });
  return scope;
}

void Scopes::leave(Op op, int unit, std::int64_t scope) noexcept {
  if (guard_.full_model_lives()) return;
  std::erase_if(doing_, [&](const auto& open) { return open.first == scope; });
  const bool planned = !free_pass().active() && !learner_.active();
  const bool was_open = planned                ? walker_.leave(op, unit, scope)
                        : free_pass().active() ? free_pass().leave(scope)
                                               : learner_.leave(scope);
  if (!was_open) return;
  open_ranges_[2 * unit + (op == Op::backward)].reset();
  if (planned) hidden_.hide_parameters(unit, walker_);
  clock_.turn_to(inside_any() && !doing_.empty() ? doing_.back().second : StepClock::Doing());
}

int Scopes::find_param(int unit, std::string_view name) const {
  const UnitDeclaration& declaration = train_.model.units[unit];
  for (const int index : declaration.params)
    if (train_.param(index).short_name == name || train_.param(index).name == name) return index;
  for (const std::string& borrowed : declaration.borrowed_names)
    if (borrowed == name) return train_.model.find(name);
  std::vector<std::string> known = declaration.borrowed_names;
  for (const int index : declaration.params) known.push_back(train_.param(index).short_name);
  const bool elsewhere = train_.model.find(name) >= 0;
  throw UsageError(
      "unit " + declaration.name + " has no parameter \"" + std::string(name) + "\"" +
      (elsewhere ? "; it belongs to another unit: declare .uses(\"" + std::string(name) + "\")"
                 : hint_for(name, known)));
}

const SegmentBuffers& Scopes::buffers_of(int param, DType dtype) const {
  const SegmentBuffers& buffers = train_.arrays.segment(train_.place(param));
  if (dtype != buffers.dtype)
    throw UsageError("parameter " + train_.param(param).name + " is " + name_of(buffers.dtype) +
                     ", but " + name_of(dtype) + " was asked for; see Engine::compute_dtype()");
  return buffers;
}

const void* Scopes::value(int unit, std::string_view name, DType dtype) const {
  const int index = find_param(unit, name);
  return buffers_of(index, dtype).whole + train_.place(index).offset * size_of(dtype);
}

const void* Scopes::resident(std::string_view name, DType dtype) const {
  const int index = train_.model.find(name);
  if (index < 0) throw UsageError("no parameter is named \"" + std::string(name) + "\"");
  if (!train_.keeps_parameters()) return nullptr;
  return buffers_of(index, dtype).whole + train_.place(index).offset * size_of(dtype);
}

void* Scopes::gradient(int unit, std::string_view name, DType dtype, float* beta) {
  const int index = find_param(unit, name);
  const ParamDeclaration& declaration = train_.param(index);
  if (!declaration.options.trainable)
    throw UsageError("parameter " + declaration.name + " is frozen and has no gradient");
  const bool inside =
      free_.active() ? free_.inside(Op::backward, unit) : walker_.inside(Op::backward, unit);
  if (!inside)
    throw UsageError("the gradient of " + declaration.name +
                     " was asked for outside a backward scope");
  const Place& place = train_.place(index);
  const SegmentBuffers& buffers = buffers_of(index, dtype);
  walker_.await_gradient(train_.plan.inputs.gradient_slots.slot_of[place.flat_unit]);
  hidden_.show_gradients(place.flat_unit);
  std::byte* data = buffers.gradient_whole + place.offset * size_of(dtype);
  char& touched = touched_[index];
  if (beta != nullptr)
    *beta = touched ? 1.f : 0.f;
  else if (!touched)
    queue_zeros(train_.runtime, data, declaration.elements * size_of(dtype));
  touched = ever_touched_[index] = 1;
  return data;
}

void Scopes::complete_gradients(int flat_unit) {
  walker_.await_gradient(train_.plan.inputs.gradient_slots.slot_of[flat_unit]);
  hidden_.show_gradients(flat_unit);
  for (const SegmentId id : train_.layout().trainable_of(flat_unit)) {
    const Segment& segment = train_.layout().segment(id);
    const SegmentBuffers& buffers = train_.arrays.segment(id);
    const auto zero = [&](std::int64_t begin, std::int64_t end) {
      queue_zeros(train_.runtime, buffers.gradient_whole + begin * size_of(buffers.dtype),
                  (end - begin) * size_of(buffers.dtype));
    };
    std::int64_t filled = 0;
    for (const auto& [param, offset] : segment.params) {
      zero(filled, offset);
      filled = offset + (touched_[param] ? train_.param(param).elements : 0);
    }
    zero(filled, segment.length);
  }
  recomputation_.note_gradient(flat_unit);
}

void Scopes::name_unasked_gradients() {
  if (std::exchange(unasked_named_, true) || train_.rank() != 0) return;
  std::vector<std::string> names;
  for (int p = 0; p < std::ssize(train_.model.params); ++p)
    if (const ParamDeclaration& param = train_.param(p);
        param.options.trainable && param.elements > 0 && !ever_touched_[p])
      names.push_back(param.name);
  if (!names.empty())
    std::fprintf(stderr, "zero: no gradient was asked for of %s; it counts as zero\n",
                 list_of(names, 8).c_str());
}

void Scopes::name_missing_losses() {
  const int missing = losses_missing_, of = train_.micro_step + 1;
  if (missing == 0 || train_.rank() != 0 || std::exchange(missing_loss_named_, true)) return;
  std::fprintf(stderr,
               train_.model.any_order
                   ? "zero: backward of %d of the %d passes of step %lld was of no loss that the "
                     "engine was given by its backward(): they count as 0 in the loss that is "
                     "reported\n"
                   : "zero: MicroStep::loss() was not called in %d of the %d micro steps of step "
                     "%lld: they count as 0 in the loss that is reported\n",
               missing, of, static_cast<long long>(train_.step + 1));
}

}  // namespace zero::detail
