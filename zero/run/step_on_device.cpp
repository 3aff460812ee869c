// The step where the host does not wait for the device: it learns of the decision one step late.
#include <cstdio>

#include "optim/gradient_norm.h"
#include "zero/run/stepper.h"

namespace zero {

namespace detail {

optim::StepRequest Stepper::request_of(const StepOptions& options) const {
  const TrainState& train = parts_.train;
  optim::StepRequest request;
  request.step = train.step;
  request.issued_hash = parts_.transfers.issued_hash();
  request.loss = parts_.scopes.loss_sum();
  request.micro_steps = train.losses;
  request.stop_requested = train.runtime.stop_requested();
  bool busy = false;
  int code = 0;
  parts_.checkpoints.report_save(busy, code);
  request.save_busy = busy;
  request.save_failed = code != 0;
  request.predivision = static_cast<double>(train.policy().precision.predivision);
  request.summands = gradients_.summands();
  request.scales_loss = train.scaler.dynamic();
  request.scaling = train.scaler.options();
  request.clipping = train.config.gradient_clipping;
  request.first_applied = train.applied_steps + 1;
  request.known_applied = in_flight_.empty() ? train.applied_steps : -1;
  for (int c = 0; c < optim::step_candidates; ++c)
    request.learning_rates[c] =
        options.learning_rate.value_or(train.plan.updates.learning_rate(request.first_applied + c));
  return request;
}

// All ranks read the same decisions before the same step, so they know the same count of applied
// steps.
void Stepper::settle(std::size_t keep) {
  for (; in_flight_.size() > keep; in_flight_.pop_front()) {
    PendingStep& step = *in_flight_.front();
    parts_.device_step->resolve(step);
    throw_if_ranks_differ(step.decision);
    note_decision(step);
  }
}

void Stepper::note_decision(const PendingStep& step) {
  TrainState& train = parts_.train;
  const optim::DeviceDecision& decision = step.decision;
  train.applied_steps = decision.applied_steps;
  gradients_.set_loss_scale(static_cast<float>(decision.loss_scale));
  parts_.checkpoints.note_news(step.number, {decision.save_busy != 0, decision.save_failed != 0});
  if (decision.non_finite == 0) {
    train.skipped_in_a_row = 0;
  } else {
    if (train.skipped_in_a_row == 0 && decision.first_non_finite_rank == train.rank())
      std::fprintf(stderr,
                   "zero: step %lld skipped on all ranks: %lld non-finite gradients, the first of "
                   "them owned by rank %d\n",
                   static_cast<long long>(step.number), static_cast<long long>(decision.non_finite),
                   train.rank());
    count_skip(step.number, "");
  }
  adjust_loss_scale(decision.non_finite > 0);
}

void Stepper::update_on_device(const Instruction& instruction) {
  TrainState& train = parts_.train;
  parts_.checkpoints.precede_by_copies(instruction, train.runtime.compute());
  if (instruction.op == Op::measure) {
    const DeviceRange range(train.runtime, Op::measure, "all units");
    return parts_.device_step->measure(*train.store);
  }
  const int flat_unit = flat_unit_of(instruction, train.plan.inputs.chunks);
  const DeviceRange range(train.runtime, Op::update, train.layout().flat_unit(flat_unit).name);
  parts_.device_step->update(instruction.target, train.store->view(instruction.target));
}

// The step may have gone on when the work runs; it is known by then whether the step is applied.
void Stepper::issue_on_host(const Instruction& instruction) {
  parts_.offload.issue_on_host(
      instruction, [this, chunk = instruction.target,
                    decision = &parts_.device_step->decision_on_host(), rate = given_rate_] {
        UpdateTerms terms{{}, rate};
        terms.scalars.step = decision->applied_steps;
        terms.scalars.gradient_multiplier = static_cast<float>(decision->gradient_multiplier);
        const bool applies = decision->apply != 0;
        if (applies) parts_.updater.update(chunk, terms);
        parts_.train.host_tier->finish_update(chunk, applies);
      });
}

std::shared_ptr<PendingStep> Stepper::step_on_device(const StepOptions& options) {
  if (options.inspect)
    throw UsageError(
        "StepOptions::inspect waits for the gradients, and a step on a GPU waits for nothing; use "
        "gradient_clipping there, or device cpu");
  settle(1);
  parts_.offload.check();
  TrainState& train = parts_.train;
  ++train.step;
  given_rate_ = options.learning_rate;
  const optim::StepRequest request = request_of(options);
  parts_.walker.begin(train.plan.steps.update);
  parts_.walker.enter(Op::agree, 0);
  auto pending = parts_.device_step->agree(
      request,
      [&](int candidate, int group, float* factors) {
        optim::StepScalars common;
        common.step = request.first_applied + candidate;
        const UpdateGroups& updates = train.plan.updates;
        optim::write_factors(updates.group(group).options,
                             updates.scalars(group, common, options.learning_rate), factors);
      },
      *train.store);
  in_flight_.push_back(pending);
  parts_.checkpoints.note_reported(train.step);
  parts_.walker.leave(Op::agree, 0);
  walk_updates([this](const Instruction& instruction) { update_on_device(instruction); });
  return pending;
}

}  // namespace detail

StepResult StepTicket::wait() const {
  if (!pending_) return result_;
  if (pending_->unresolved != nullptr) pending_->unresolved->resolve(*pending_);
  const optim::DeviceDecision& decision = pending_->decision;
  detail::throw_if_ranks_differ(decision);
  return {pending_->number,
          decision.loss,
          decision.norm,
          decision.learning_rate,
          static_cast<float>(decision.loss_scale),
          decision.apply == 0,
          decision.stop_requested != 0};
}

}  // namespace zero
