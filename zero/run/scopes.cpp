#include <algorithm>
#include <exception>

#include "zero/run/engine_core.h"

namespace zero {

namespace detail {

std::vector<Unit*> EngineCore::backward_units() {
  std::vector<Unit*> units;
  for (const int unit : backward_order(model_, plan_.layout)) units.push_back(&units_[unit]);
  return units;
}

Unit& EngineCore::unit(std::string_view name) {
  if (const auto found = model_.index_of_unit.find(name); found != model_.index_of_unit.end())
    return units_[found->second];
  std::vector<std::string> names;
  for (const UnitDeclaration& unit : model_.units) names.push_back(unit.name);
  const std::string nearest = nearest_name(name, names);
  throw UsageError("no unit is named \"" + std::string(name) + "\"" +
                   (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
}

const std::string& EngineCore::unit_name(int unit) const {
  return model_.units[unit].name;
}

const StepPlan& EngineCore::plan_of(int micro_step) const {
  if (accumulation() == 1) return plan_.steps.only;
  if (micro_step == 0) return plan_.steps.first;
  return micro_step + 1 == accumulation() ? plan_.steps.last : plan_.steps.middle;
}

void EngineCore::begin_micro_step(int index, std::int64_t pass) {
  if (phase_ == Phase::micro_step && micro_step_ == index && pass_ == pass) return;
  if (phase_ == Phase::micro_step) finish_micro_step();
  require(Phase::idle, "a micro step");
  require_values("");
  if (micro_steps_done_ == accumulation())
    throw UsageError(
        "Engine::micro_steps() was begun again before Engine::step(): call step() once, after " +
        (accumulation() == 1 ? "the micro step"
                             : "all " + std::to_string(accumulation()) + " micro steps"));
  if (index != micro_steps_done_)
    throw UsageError("micro step " + std::to_string(index) + " was begun where micro step " +
                     std::to_string(micro_steps_done_) + " of " + std::to_string(accumulation()) +
                     " comes next; run every element of Engine::micro_steps(), in order");
  if (!replicas_checked_ && ranks_.model_parallel()) check_replicas();
  if (index == 0) {
    loss_sum_ = 0;
    losses_missing_ = 0;
    if (device_step_) device_step_->begin_losses();
    clock_.start();
  }
  if (index == 0 || plan_.sync_each || plan_.inputs.accumulate_locally)
    std::fill(touched_.begin(), touched_.end(), char{0});
  pass_ = pass;
  micro_step_ = index;
  loss_given_ = false;
  phase_ = Phase::micro_step;
  walker_->begin(plan_of(index));
}

void EngineCore::finish_micro_step() {
  if (!failure_.empty()) throw UsageError("the micro step cannot end after a failure: " + failure_);
  try {
    walker_->finish();
  } catch (const std::exception& error) {
    poison(error.what());
    throw;
  }
  if (!loss_given_) ++losses_missing_;
  ++micro_steps_done_;
  phase_ = Phase::idle;
}

void EngineCore::set_loss(double mean) {
  loss_given_ = true;
  loss_sum_ += mean;
}

void EngineCore::enter(Op op, int unit) {
  if (!failure_.empty()) throw UsageError("a scope was opened after a failure: " + failure_);
  if (phase_ == Phase::materialized && op == Op::forward) {
    if (!materialized_here_)
      throw UsageError("forward of unit " + unit_name(unit) + ": rank " + std::to_string(rank()) +
                       " does not hold the full model; see Engine::materialize(only_rank)");
    return;
  }
  if (phase_ != Phase::micro_step && !(phase_ == Phase::evaluation && op == Op::forward))
    throw UsageError(std::string(name_of(op)) + " of unit " + unit_name(unit) +
                     " was called outside Engine::micro_steps()" +
                     (op == Op::forward ? " and Engine::evaluate()" : ""));
  try {
    walker_->enter(op, unit);
    if (hides_)
      for (const int f : plan_.layout.needs_of_unit[unit]) show_parameters(f);
    if (device_step_) range_of(op, unit) = begin_range(op, unit_name(unit));
    clock_.turn_to(StepClock::Activity::kernels);
  } catch (const std::exception& error) {
    poison(error.what());
    throw;
  }
}

void EngineCore::leave(Op op, int unit) noexcept {
  if (phase_ == Phase::materialized) return;
  if (device_step_) runtime_.device().end_range(range_of(op, unit));
  walker_->leave(op, unit);
  if (hides_) hide_parameters(unit);
  if (!walker_->inside_any()) clock_.turn_to(StepClock::Activity::other);
}

int EngineCore::find_param(int unit, std::string_view name) const {
  const UnitDeclaration& declaration = model_.units[unit];
  for (const int index : declaration.params)
    if (param(index).short_name == name || param(index).name == name) return index;
  for (const std::string& borrowed : declaration.borrowed_names)
    if (borrowed == name) return model_.find(name);
  std::vector<std::string> known = declaration.borrowed_names;
  for (const int index : declaration.params) known.push_back(param(index).short_name);
  const std::string nearest = nearest_name(name, known);
  const bool elsewhere = model_.find(name) >= 0;
  throw UsageError(
      "unit " + declaration.name + " has no parameter \"" + std::string(name) + "\"" +
      (elsewhere ? "; it belongs to another unit: declare .uses(\"" + std::string(name) + "\")"
       : nearest.empty() ? ""
                         : "; did you mean \"" + nearest + "\"?"));
}

namespace {

void check_dtype(const std::string& name, DType asked, DType actual) {
  if (asked != actual)
    throw UsageError("parameter " + name + " is " + name_of(actual) + ", but " + name_of(asked) +
                     " was asked for; see Engine::compute_dtype()");
}

}  // namespace

const void* EngineCore::value(int unit, std::string_view name, DType dtype) const {
  const int index = find_param(unit, name);
  const Place& place = plan_.layout.place_of_param[index];
  const SegmentBuffers& buffers = state_->segment(place.flat_unit, place.segment);
  check_dtype(param(index).name, dtype, buffers.dtype);
  return buffers.whole + place.offset * size_of(buffers.dtype);
}

void* EngineCore::gradient(int unit, std::string_view name, DType dtype, float* beta) {
  const int index = find_param(unit, name);
  const ParamDeclaration& declaration = param(index);
  if (!declaration.options.trainable)
    throw UsageError("parameter " + declaration.name + " is frozen and has no gradient");
  if (!walker_->inside(Op::backward, unit))
    throw UsageError("the gradient of " + declaration.name +
                     " was asked for outside a backward scope");
  const Place& place = plan_.layout.place_of_param[index];
  const SegmentBuffers& buffers = state_->segment(place.flat_unit, place.segment);
  check_dtype(declaration.name, dtype, buffers.dtype);
  walker_->await_gradient(plan_.inputs.gradient_slots.slot_of[place.flat_unit]);
  show_gradients(place.flat_unit);
  std::byte* data = buffers.gradient_whole + place.offset * size_of(buffers.dtype);
  char& touched = touched_[index];
  if (beta != nullptr) {
    *beta = touched ? 1.f : 0.f;
  } else if (!touched) {
    fill_zero(data, declaration.elements * size_of(buffers.dtype));
  }
  touched = ever_touched_[index] = 1;
  return data;
}

// A compute step has ended: what it leaves for a reduction must be whole.
void EngineCore::settle(const Instruction& instruction) {
  if (instruction.op != Op::backward) return;
  for (const int f : plan_.layout.needs_of_unit[instruction.target])
    if (flat(f).users.front() == instruction.target) complete_gradients(f);
}

// Gradients never asked for count as zero, and so does the padding between parameters.
void EngineCore::complete_gradients(int flat_unit) {
  const int slot = plan_.inputs.gradient_slots.slot_of[flat_unit];
  if (slot < 0) return;
  walker_->await_gradient(slot);
  show_gradients(flat_unit);
  for (std::size_t s = 0; s < flat(flat_unit).segments.size(); ++s) {
    const Segment& segment = flat(flat_unit).segments[s];
    if (!segment.trainable) continue;
    const SegmentBuffers& buffers = state_->segment(flat_unit, static_cast<int>(s));
    const auto zero = [&](std::int64_t begin, std::int64_t end) {
      fill_zero(buffers.gradient_whole + begin * size_of(buffers.dtype),
                (end - begin) * size_of(buffers.dtype));
    };
    std::int64_t filled = 0;
    for (const ParamPlace& place : segment.params) {
      zero(filled, place.offset);
      filled = place.offset;
      if (touched_[place.param]) filled += param(place.param).elements;
    }
    zero(filled, segment.length);
  }
}

EngineCore& EngineLink::of(const char* handle) const {
  if (!core_) throw UsageError("this " + std::string(handle) + " has been moved from");
  if (*core_ == nullptr)
    throw UsageError("the engine of this " + std::string(handle) + " has been destroyed");
  return **core_;
}

}  // namespace detail

const void* Scope::raw(std::string_view name, DType dtype) const {
  return core_.of("scope").value(unit_, name, dtype);
}

ForwardScope& ForwardScope::operator=(ForwardScope&& other) noexcept {
  if (this == &other) return *this;
  end();
  Scope::operator=(std::move(other));
  return *this;
}

void ForwardScope::end() noexcept {
  if (detail::EngineCore* core = core_.get()) core->leave(detail::Op::forward, unit_);
}

BackwardScope::BackwardScope(detail::EngineLink core, int unit)
    : Scope(std::move(core), unit), exceptions_at_entry_(std::uncaught_exceptions()) {}

BackwardScope& BackwardScope::operator=(BackwardScope&& other) noexcept {
  if (this == &other) return *this;
  end();
  exceptions_at_entry_ = other.exceptions_at_entry_;
  Scope::operator=(std::move(other));
  return *this;
}

void BackwardScope::end() noexcept {
  detail::EngineCore* core = core_.get();
  if (core == nullptr) return;
  if (std::uncaught_exceptions() > exceptions_at_entry_)
    core->poison("the backward scope of unit " + core->unit_name(unit_) +
                 " was left by an exception");
  else
    core->leave(detail::Op::backward, unit_);
}

void* BackwardScope::raw_grad(std::string_view name, DType dtype, float* beta) {
  return core_.of("scope").gradient(unit_, name, dtype, beta);
}

std::string_view Unit::name() const {
  return core_.of("unit").unit_name(index_);
}

ForwardScope Unit::forward() {
  core_.of("unit").enter(detail::Op::forward, index_);
  return {core_, index_};
}

BackwardScope Unit::backward() {
  core_.of("unit").enter(detail::Op::backward, index_);
  return {core_, index_};
}

bool MicroStep::last() const {
  return index_ + 1 == core_.of("micro step").accumulation();
}
float MicroStep::loss_scale() const {
  return core_.of("micro step").loss_scale();
}
const float* MicroStep::device_loss_scale() const {
  return core_.of("micro step").device_loss_scale();
}
void MicroStep::loss(double mean) {
  core_.of("micro step").set_loss(mean);
}
void MicroStep::loss(const float* device_mean) {
  core_.of("micro step").set_loss(device_mean);
}

MicroSteps::iterator MicroSteps::begin() const {
  return {core_, 0, core_.of("micro step").begin_pass()};
}

MicroStep MicroSteps::iterator::operator*() const {
  core_.of("micro step").begin_micro_step(index_, pass_);
  return {core_, index_};
}

}  // namespace zero
