// The calls of the handles that an engine returns (scopes.h, zero.h), forwarded to the parts of the
// engine.
#include <exception>
#include <utility>

#include "zero/engine/engine_core.h"

namespace zero {

namespace detail {

EngineCore& EngineLink::of(const char* handle) const {
  if (!core_) throw UsageError("this " + std::string(handle) + " has been moved from");
  if (*core_ == nullptr)
    throw UsageError("the engine of this " + std::string(handle) + " has been destroyed");
  return **core_;
}

}  // namespace detail

void Evaluation::end() noexcept {
  if (detail::EngineCore* core = core_.get()) core->evaluations().end();
}
bool Evaluation::next(bool have_batch) {
  return core_.of("evaluation").evaluations().next(have_batch);
}

void FullModel::end() noexcept {
  if (detail::EngineCore* core = core_.get()) core->weights().dematerialize();
}

bool SaveTicket::wait() const {
  detail::EngineCore& core = core_.of("save");
  if (!save_->is_finished()) core.begin_call(detail::Call::wait_for_save);
  return core.checkpoints().finish(*save_);
}

Scope::Scope(detail::EngineLink core, detail::Op op, int unit)
    : core_(std::move(core)),
      op_(op),
      unit_(unit),
      number_(core_.of("unit").scopes().enter(op, unit)),
      exceptions_at_entry_(std::uncaught_exceptions()) {}

Scope& Scope::operator=(Scope&& other) noexcept {
  if (this == &other) return *this;
  end();
  core_ = std::move(other.core_);
  op_ = other.op_;
  unit_ = other.unit_;
  number_ = other.number_;
  exceptions_at_entry_ = other.exceptions_at_entry_;
  return *this;
}

void Scope::end() noexcept {
  detail::EngineCore* core = core_.get();
  if (core == nullptr) return;
  if (op_ == detail::Op::backward && std::uncaught_exceptions() > exceptions_at_entry_)
    core->guard().poison("the backward scope of unit " + core->train().model.units[unit_].name +
                         " was left by an exception");
  else
    core->scopes().leave({op_, unit_, number_});
}

const void* Scope::raw(std::string_view name, DType dtype) const {
  return core_.of("scope").scopes().value(unit_, name, dtype);
}

void* Scope::raw_kept(std::string_view name, DType dtype) const {
  return core_.of("scope").scopes().kept({op_, unit_, number_}, name, dtype);
}

void* Scope::raw_input(bool gradient, DType dtype) const {
  return core_.of("scope").scopes().input({op_, unit_, number_}, gradient, dtype);
}

void* BackwardScope::raw_grad(std::string_view name, DType dtype, float* beta) {
  return core_.of("scope").scopes().gradient(unit_, name, dtype, beta);
}

std::span<const std::byte> Scope::input_bytes() const {
  return core_.of("scope").scopes().message({op_, unit_, number_}, detail::input_name, {});
}

std::byte* Scope::output_bytes(std::size_t size) const {
  return core_.of("scope")
      .scopes()
      .message({op_, unit_, number_}, detail::output_name, size)
      .data();
}

std::span<const std::byte> BackwardScope::output_gradient_bytes() const {
  return core_.of("scope").scopes().message({op_, unit_, number_}, detail::output_gradient_name,
                                            {});
}

std::byte* BackwardScope::input_gradient_bytes(std::size_t size) const {
  return core_.of("scope")
      .scopes()
      .message({op_, unit_, number_}, detail::input_gradient_name, size)
      .data();
}

std::string_view Unit::name() const {
  return core_.of("unit").train().model.units[index_].name;
}

int Unit::micro_batches_in_flight() const {
  const detail::PlanInputs& inputs = core_.of("unit").train().plan.inputs;
  return inputs.room[inputs.model->run_of(index_)].kept;
}

ForwardScope Unit::forward() {
  return {core_, detail::Op::forward, index_};
}

BackwardScope Unit::backward() {
  return {core_, detail::Op::backward, index_};
}

std::int64_t MicroStep::number() const {
  return core_.of("micro step").recomputation().number(index_);
}
bool MicroStep::last() const {
  return core_.of("micro step").accumulation().is_last(index_);
}
float MicroStep::loss_scale() const {
  return core_.of("micro step").stepper().loss_scale();
}
const float* MicroStep::device_loss_scale() const {
  return core_.of("micro step").scalars().loss_scale();
}
void MicroStep::loss(double mean) {
  core_.of("micro step").accumulation().set_loss(index_, mean);
}
void MicroStep::loss(const float* device_mean) {
  core_.of("micro step").accumulation().set_loss(index_, device_mean);
}

MicroSteps::iterator MicroSteps::begin() const {
  return {core_, 0, core_.of("micro step").accumulation().begin_loop()};
}

bool MicroSteps::iterator::repeats() const {
  detail::EngineCore* core = core_.get();
  return core != nullptr && core->accumulation().more_repeats();
}

MicroStep MicroSteps::iterator::operator*() const {
  core_.of("micro step").accumulation().begin_micro_step(index_, pass_);
  return {core_, index_};
}

Unit& Task::unit() const {
  return core_.of("task").units()[unit_];
}

// The program's scopes are the instructions of the compute stream.
Task Tasks::iterator::operator*() const {
  const detail::Instruction& scope = *core_.of("task").accumulation().tasks()[number_];
  return {core_, scope.target, scope.micro_batch, scope.op == detail::Op::forward};
}

Tasks::iterator Tasks::begin() const {
  core_.of("list of tasks").accumulation().begin_tasks();
  return {core_, 0};
}

Tasks::iterator Tasks::end() const {
  return {core_, static_cast<int>(core_.of("list of tasks").accumulation().tasks().size())};
}

StepResult StepTicket::wait() const {
  return detail::result_of(*pending_);
}

bool ChangeStream::next(const std::function<void(const ChangedValues&)>& visitor) {
  core_.of("stream of changes").begin_call(detail::Call::next_changes);
  return windows_ != nullptr && windows_->next(visitor);
}

double Gradients::loss() const {
  return stepper_.loss();
}
double Gradients::norm() const {
  return stepper_.gradient_norm();
}
double Gradients::norm(std::string_view name) const {
  return stepper_.gradient_norm(name);
}
void Gradients::edit(const std::function<void(ParamShard)>& change) {
  stepper_.edit_gradients(change);
}
void Gradients::visit(const ElementVisitor& visitor) {
  stepper_.visit_elements(visitor);
}

}  // namespace zero
