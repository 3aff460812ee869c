// What the engine does otherwise on a device: it asks, and learns of the outcome one step late.
#include <cstdio>

#include "optim/gradient_norm.h"
#include "zero/run/engine_core.h"

namespace zero {

namespace detail {

namespace {

constexpr std::int64_t most_skips_in_a_row = 50;

StepResult result_of(const PendingStep& step) {
  const optim::StepVerdict& verdict = step.verdict;
  return {step.number,
          verdict.loss,
          verdict.norm,
          verdict.learning_rate,
          static_cast<float>(verdict.loss_scale),
          verdict.apply == 0,
          verdict.stop_requested != 0};
}

}  // namespace

std::uint64_t EngineCore::begin_range(Op op, const std::string& name) {
  const std::string what = std::string(name_of(op)) + " of ";
  runtime_.device().waits().set_subject(what + "unit " + name);
  return runtime_.device().begin_range(what + name);
}

std::uint64_t EngineCore::begin_range(const Instruction& instruction) {
  return begin_range(instruction.op, flat(flat_unit_of(instruction, plan_.inputs.chunks)).name);
}

void EngineCore::cast(const Source& from, const Target& to, std::int64_t count, Stream stream) {
  if (!device_step_)
    optim::cast(from.data, from.dtype, to.data, to.dtype, count);
  else if (from.dtype == to.dtype)
    runtime_.device().copy(to.data, from.data, count * size_of(to.dtype), stream);
  else
    runtime_.kernels().cast(from.data, from.dtype, to.data, to.dtype, count, stream);
}

void EngineCore::assign_or_add(const Target& sum, const Source& addend, std::int64_t count,
                               bool first, Stream stream) {
  if (!device_step_)
    detail::assign_or_add(sum, addend, count, first);
  else if (first)
    cast(addend, sum, count, stream);
  else
    runtime_.kernels().accumulate(sum.data, sum.dtype, addend.data, addend.dtype, count, stream);
}

void EngineCore::divide(const Target& gradient, std::int64_t count, float divisor, Stream stream) {
  if (device_step_)
    runtime_.kernels().divide(gradient.data, gradient.dtype, count, divisor, stream);
  else
    optim::divide_gradient(gradient.data, gradient.dtype, count, divisor);
}

void EngineCore::set_loss(const float* mean) {
  if (!device_step_) return set_loss(static_cast<double>(*mean));
  loss_given_ = true;
  device_step_->add_loss(mean);
}

// On a device the host's scaler follows the verdicts that it has read.
float EngineCore::loss_scale() {
  if (device_step_ && scaler_.dynamic()) settle_steps(0);
  return scaler_.scale();
}

const float* EngineCore::device_loss_scale() {
  if (device_step_) return device_step_->loss_scale();
  host_loss_scale_ = scaler_.scale();
  return &host_loss_scale_;
}

void EngineCore::restore_scaler(const optim::LossScalerState& state) {
  scaler_.restore(state);
  if (device_step_) device_step_->set_scaler(state);
}

optim::StepRequest EngineCore::request_of(const StepOptions& options) const {
  optim::StepRequest request;
  request.step = step_count_;
  request.collectives_hash = collectives_hash_;
  request.loss = loss_sum_;
  request.micro_steps = static_cast<double>(plan_.batch.accumulation);
  request.stop_requested = runtime_.stop_requested();
  report_save(request);
  request.predivision = static_cast<double>(state_->policy().precision.predivision);
  request.summands = summands();
  request.scales_loss = scaler_.dynamic();
  request.scaling = scaler_.options();
  request.clipping = config_.gradient_clipping;
  request.first_applied = applied_steps_ + 1;
  request.known_applied = in_flight_.empty() ? applied_steps_ : -1;
  for (int c = 0; c < optim::step_candidates; ++c)
    request.learning_rates[c] =
        options.learning_rate.value_or(plan_.updates.learning_rate(request.first_applied + c));
  return request;
}

// All ranks read the same verdicts before the same step, so they know the same count of applied
// steps.
void EngineCore::settle_steps(std::size_t keep) {
  for (; in_flight_.size() > keep; in_flight_.pop_front()) {
    PendingStep& step = *in_flight_.front();
    device_step_->resolve(step);
    throw_if_ranks_differ(step.verdict);
    applied_steps_ = step.verdict.applied_steps;
    gradient_scale_ = static_cast<float>(step.verdict.loss_scale);
    note_skip(step);
    adjust_loss_scale(step.verdict.non_finite > 0);
  }
}

void EngineCore::note_skip(const PendingStep& step) {
  if (step.verdict.non_finite == 0) {
    skipped_in_a_row_ = 0;
    return;
  }
  if (skipped_in_a_row_++ == 0 && step.verdict.first_non_finite_rank == rank())
    std::fprintf(stderr,
                 "zero: step %lld skipped on all ranks: %lld non-finite gradients, the first of "
                 "them owned by rank %d\n",
                 static_cast<long long>(step.number),
                 static_cast<long long>(step.verdict.non_finite), rank());
  if (skipped_in_a_row_ >= most_skips_in_a_row && !scaler_.reaches_floor())
    throw NumericError("gradients were not finite for " + std::to_string(most_skips_in_a_row) +
                       " steps in a row, last at step " + std::to_string(step.number) +
                       "; lower the learning rate or clip gradients");
}

void EngineCore::update_on_device(const Instruction& instruction) {
  precede_by_copies(instruction, runtime_.compute());
  if (instruction.op == Op::measure) {
    const std::uint64_t range = begin_range(Op::measure, "all units");
    device_step_->measure(*store_);
    return runtime_.device().end_range(range);
  }
  const Chunk& chunk = plan_.inputs.chunks[instruction.target];
  const std::uint64_t range = begin_range(Op::update, flat(chunk.flat_unit).name);
  device_step_->update(instruction.target, store_->view(instruction.target));
  runtime_.device().end_range(range);
}

// The step may have gone on when the work runs.
void EngineCore::issue_beside_device(const Instruction& instruction) {
  const int target = instruction.target;
  const std::uint64_t range = begin_range(instruction);
  switch (instruction.op) {
    case Op::download:
      copies_out_->enqueue([this, target](Stream stream) {
        host_tier_->download(target, device_step_->own_word(), stream);
      });
      break;
    case Op::supply:
      copies_in_->enqueue([this, target](Stream stream) { host_tier_->supply(target, stream); });
      break;
    case Op::upload:
      precede_by_copies(instruction, *copies_in_);
      copies_in_->enqueue([this, target](Stream stream) { host_tier_->upload(target, stream); });
      break;
    case Op::update_on_host:
      call_host(instruction, [this, target, verdict = &device_step_->verdict_on_host(),
                              rate = given_rate_] { update_on_host(target, *verdict, rate); });
      break;
    default:
      break;
  }
  runtime_.device().end_range(range);
}

// On the thread of the host's stream.
void EngineCore::call_host(const Instruction& instruction, std::function<void()> work) {
  host_->enqueue([this, named = Instruction{instruction.op, instruction.target, {}, {}},
                  work = std::move(work)](Stream) { run_offload(named, work); });
}

// It is known by then whether the step is applied.
void EngineCore::update_on_host(int chunk, const optim::StepVerdict& verdict,
                                std::optional<double> given_rate) {
  UpdateTerms terms{{}, given_rate};
  terms.scalars.step = verdict.applied_steps;
  terms.scalars.gradient_multiplier = static_cast<float>(verdict.gradient_multiplier);
  const bool applies = verdict.apply != 0;
  if (applies) updater_->update(chunk, terms);
  host_tier_->finish_update(chunk, applies);
}

std::shared_ptr<PendingStep> EngineCore::step_on_device(const StepOptions& options) {
  if (options.inspect)
    throw UsageError(
        "StepOptions::inspect waits for the gradients, and a step on a GPU waits for nothing; use "
        "gradient_clipping there, or device cpu");
  settle_steps(1);
  check_offload();
  ++step_count_;
  given_rate_ = options.learning_rate;
  const optim::StepRequest request = request_of(options);
  walker_->begin(plan_.steps.update);
  walker_->enter(Op::agree, 0);
  auto pending = device_step_->agree(
      request,
      [&](int candidate, int group, float* factors) {
        optim::StepScalars common;
        common.step = request.first_applied + candidate;
        optim::write_factors(plan_.updates.group(group).options,
                             plan_.updates.scalars(group, common, options.learning_rate), factors);
      },
      *store_);
  in_flight_.push_back(pending);
  note_reported_save(pending);
  walker_->leave(Op::agree, 0);
  while (const Instruction* next = walker_->next_compute()) {
    const Instruction instruction = *next;
    walker_->enter(instruction.op, instruction.target);
    update_on_device(instruction);
    walker_->leave(instruction.op, instruction.target);
  }
  walker_->finish();
  return pending;
}

}  // namespace detail

StepResult StepTicket::wait() const {
  if (!pending_) return result_;
  if (pending_->unresolved != nullptr) pending_->unresolved->resolve(*pending_);
  detail::throw_if_ranks_differ(pending_->verdict);
  return detail::result_of(*pending_);
}

}  // namespace zero
