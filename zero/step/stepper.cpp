#include "zero/step/stepper.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <utility>

#include "zero/base/hash.h"
#include "zero/base/run_marks.h"
#include "zero/pass/device_range.h"
#include "zero/runtime/agreement.h"
#include "zero/step/replica_check.h"

namespace zero::detail {

namespace {

constexpr std::int64_t most_skips_in_a_row = 50;

using optim::step_candidates;
using optim::StepDecision;
using optim::StepRequest;

// Process-wide, because signals stop the process with all engines.
std::atomic<bool> told_to_stop = false, goes_on_said = false;

}  // namespace

Stepper::~Stepper() {
  for (const auto& step : in_flight_) try {
      resolve(*step);
    } catch (const std::exception&) {
      // The ticket then returns "skipped"; the failure was thrown at its origin.
      step->unresolved = nullptr;
    }
}

std::shared_ptr<PendingStep> Stepper::step(const StepOptions& options) {
  parts_.accumulation.end_open_micro_step();
  parts_.guard.require(Call::step);
  if (told_to_stop && !goes_on_said.exchange(true)) mark("goes-on", parts_.train.rank());
  parts_.train.all_groups().check(options.learning_rate, options.groups);
  parts_.accumulation.end_step(options.mean_over);
  std::shared_ptr<PendingStep> pending;
  parts_.guard.or_poison([&] {
    late_ = parts_.accumulation.reduce_late();
    pending = take_step(options);
    parts_.clock.stop();
    parts_.walker.forget_contents();
    parts_.hidden.hide_all_parameters();
  });
  note_step(parts_.train.step, parts_.train.is_root());
  // The step is complete, independent of a failed save. All ranks have read the same decisions.
  const std::int64_t unread = on_host() ? 0 : 2;
  parts_.checkpoints.advance(parts_.train.step - unread);
  return pending;
}

std::shared_ptr<PendingStep> Stepper::take_step(const StepOptions& options) {
  settle(ahead(options));
  parts_.offload.check();
  TrainState& train = parts_.train;
  ++train.step;
  parts_.walker.begin(train.plan.steps.update);
  parts_.walker.enter(Op::agree, 0);
  // Before the update, because later gathers overwrite a drifted copy.
  if (verifies(options))
    verify_replicas(train, "before the update of step " + std::to_string(train.step));
  const std::shared_ptr<PendingStep> pending = agree(options);
  parts_.walker.leave(Op::agree, 0);
  if (ahead(options) == 0) settle();
  // On GPU ranks, work on offloaded state is queued already, and has no effect if a step is
  // skipped.
  if (on_host() && pending->decision.apply == 0)
    parts_.walker.abandon();
  else
    walk_updates();
  return pending;
}

std::shared_ptr<PendingStep> Stepper::agree(const StepOptions& options) {
  if (ahead(options) == 0) gradient_scale_ = parts_.train.scaler.scale();
  gradients_edited_ = false;
  StepRequest request = request_of(options);
  {
    const During optimizer(parts_.clock, {StepClock::Activity::optimizer, Op::agree});
    // A late sum was spilled before it was known to be final, so the squares are read back from the
    // file.
    request.norm = squares_elsewhere(on_host() && late_);
    parts_.agreement.begin(request, factors_of(request, options),
                           parts_.accumulation.losses().each());
    queue_squares();
  }
  {
    const During waiting(parts_.clock, {StepClock::Activity::waiting, Op::agree});
    parts_.agreement.agree();
    in_flight_.push_back(
        std::make_shared<PendingStep>(PendingStep{request.step, this, text_of(options.groups)}));
  }
  parts_.checkpoints.note_reported(parts_.train.step);
  if (options.inspect) inspect_and_agree(options, request);
  return in_flight_.back();
}

double Stepper::summands() const {
  const TrainState& train = parts_.train;
  if (train.plan.rank_independent()) return static_cast<double>(train.plan.batch.micro_batches);
  return (train.config.gradient_allreduce_op == "sum" ? 1 : train.rank_count()) * train.losses;
}

double Stepper::inverse_gradient_scale() const {
  return parts_.train.policy().precision.predivision / (summands() * gradient_scale_);
}

double Stepper::pending_scale(std::optional<double> mean_over, bool reduced) {
  const TrainState& train = parts_.train;
  if (train.plan.rank_independent()) return 1 / (summands() * loss_scale());
  const double ranks = train.config.gradient_allreduce_op == "sum" ? 1 : train.rank_count();
  const double over = mean_over.value_or(parts_.accumulation.ended_micro_steps());
  return (reduced ? train.policy().precision.predivision : 1) / (ranks * over * loss_scale());
}

void Stepper::for_gradients(const std::function<void(const ArrayId&, const Segment&)>& each) const {
  for (const SegmentId& id : parts_.train.layout().segments())
    if (const Segment& segment = parts_.train.layout().segment(id); segment.trainable)
      each({id, ArrayKind::gradient_shard}, segment);
}

std::vector<Stepper::Squares> Stepper::list_squares() const {
  TrainState& train = parts_.train;
  optim::StepVote& vote = *parts_.scalars.own_vote();
  std::vector<Squares> squares;
  for_gradients([&](const ArrayId& gradient, const Segment& segment) {
    const Range own = train.policy().measured(segment);
    const std::int64_t count = std::min(own.end, train.store->end_in_memory(gradient)) - own.begin;
    if (count > 0)
      squares.push_back({train.store->address(gradient, own.begin), train.store->dtype_of(gradient),
                         count,
                         train.arrays.segment(gradient).in_norm ? &vote.norm : &vote.uncounted});
  });
  return squares;
}

void Stepper::queue_squares() const {
  RuntimeCore& runtime = parts_.train.runtime;
  for (const Squares& own : squares_)
    runtime.compute().enqueue([&kernels = runtime.kernels(), own](Stream stream) {
      kernels.add_norm(own.gradient, own.dtype, own.count, own.sum, stream);
    });
}

optim::NormSum Stepper::squares_elsewhere(bool read_again) const {
  TrainState& train = parts_.train;
  const optim::NormSum written = train.offload ? train.offload->take_squares() : optim::NormSum();
  return read_again ? own_squares(false) : written;
}

optim::NormSum Stepper::own_squares(bool also_in_memory) const {
  TrainState& train = parts_.train;
  optim::NormSum sum;
  for_gradients([&](const ArrayId& gradient, const Segment& segment) {
    Range measured = train.policy().measured(segment);
    if (!also_in_memory)
      measured.begin = std::max(measured.begin, train.store->end_in_memory(gradient));
    optim::NormSum own;
    if (!measured.empty()) add_squares(gradient, measured, own);
    add_sum(train.arrays.segment(gradient).in_norm ? own : without_sum(own), sum);
  });
  return sum;
}

// Shows the gradients and the ranks' preliminary decision to the program; then the ranks agree
// again on the program's changes and decision.
void Stepper::inspect_and_agree(const StepOptions& options, StepRequest request) {
  PendingStep& step = *in_flight_.back();
  resolve(step);
  refuse_differences(step);
  request.preliminary = 0;
  Gradients gradients(*this);
  request.skip = options.inspect(gradients) == Decision::skip;
  request.norm = gradients_edited_ ? squares_elsewhere(true) : optim::NormSum();
  parts_.agreement.begin_final(request, gradients_edited_);
  if (gradients_edited_) queue_squares();
  const During waiting(parts_.clock, {StepClock::Activity::waiting, Op::agree});
  parts_.agreement.agree();
  step.unresolved = this;
}

bool Stepper::verifies(const StepOptions& options) const {
  const std::int64_t every = parts_.train.config.zero_core.verify_every;
  return every > 0 && (options.verify_replicas || parts_.train.step % every == 0);
}

StepRequest Stepper::request_of(const StepOptions& options) const {
  const TrainState& train = parts_.train;
  StepRequest request;
  request.step = train.step;
  request.issued_hash = parts_.transfers.issued_hash();
  request.loss = parts_.accumulation.losses().sum();
  request.micro_steps = train.losses;
  request.micro_batches = train.plan.batch.micro_batches;
  request.tensor_ranks = train.plan.on.tensor.ranks;
  request.tensor_rank = train.plan.on.tensor.rank;
  request.stages = train.plan.grid.stages();
  request.stop_requested = train.runtime.stop_requested();
  request.inspects = request.preliminary = static_cast<bool>(options.inspect);
  if (!options.groups.empty()) request.groups_hash = hash_of(text_of(options.groups));
  const SaveNews news = parts_.checkpoints.own_news();
  request.save_busy = news.busy;
  request.save_failed = news.failed;
  request.predivision = static_cast<double>(train.policy().precision.predivision);
  request.summands = summands();
  request.scales_loss = train.scaler.dynamic();
  request.scaling = train.scaler.options();
  request.clipping = train.config.gradient_clipping;
  request.first_applied = train.applied_steps + 1;
  request.known_applied = in_flight_.empty() ? train.applied_steps : -1;
  for (int c = 0; c < step_candidates; ++c)
    request.learning_rates[c] =
        options.learning_rate.value_or(train.plan.updates.learning_rate(request.first_applied + c));
  return request;
}

std::shared_ptr<const StepFactors> Stepper::factors_of(const StepRequest& request,
                                                       const StepOptions& options) const {
  const UpdateGroups& updates = parts_.train.plan.updates;
  const int groups = parts_.agreement.groups();
  auto factors = std::make_shared<StepFactors>(step_candidates * groups * optim::most_factors);
  for (int candidate = 0; candidate < step_candidates; ++candidate)
    for (int group = 0; group < std::ssize(updates.groups()); ++group)
      updates.write_factors(group, request.first_applied + candidate, options.learning_rate,
                            options.groups,
                            factors->data() + (candidate * groups + group) * optim::most_factors);
  return factors;
}

void Stepper::walk_updates() {
  while (const Instruction* next = parts_.walker.next_compute()) {
    const Instruction instruction = *next;
    parts_.walker.enter(instruction.op, instruction.target);
    update(instruction);
    parts_.walker.leave(instruction.op, instruction.target);
  }
  parts_.walker.finish();
}

void Stepper::update(const Instruction& instruction) {
  if (on_host()) maybe_delay();
  const During optimizer(parts_.clock,
                         {StepClock::Activity::optimizer, instruction.op, instruction.target});
  TrainState& train = parts_.train;
  if (instruction.op == Op::measure) {
    const DeviceRange range(train.runtime, Op::measure, "all units");
    return parts_.updates.measure();
  }
  const int flat_unit = flat_unit_of(instruction, train.plan.inputs.chunks);
  const DeviceRange range(train.runtime, Op::update, train.layout().flat_unit(flat_unit).name);
  parts_.updates.update(instruction.target, parts_.transfers);
}

// The step may have continued when the work runs; by then the decision is known.
void Stepper::issue_on_host(const Instruction& instruction) {
  parts_.offload.enqueue(
      instruction, [this, chunk = instruction.target, factors = parts_.agreement.factors_on_host(),
                    decision = parts_.agreement.decision_on_host()] {
        const bool applies = decision->apply != 0;
        if (applies) parts_.updates.update_on_host(chunk, *factors, *decision);
        parts_.train.offload->round_parameters(chunk, applies);
      });
}

void Stepper::issue_streamed(const Instruction& instruction) {
  const TrainState& train = parts_.train;
  const int flat_unit = flat_unit_of(instruction, train.plan.inputs.chunks);
  const DeviceRange range(train.runtime, Op::update, train.layout().flat_unit(flat_unit).name);
  parts_.updates.update_streamed(instruction.target, *parts_.offload.stream(instruction.stream));
}

void Stepper::resolve(PendingStep& step) {
  for (const auto& other : in_flight_) {
    if (other->unresolved == nullptr || other->number > step.number) continue;
    parts_.agreement.read(*other);
    other->unresolved = nullptr;
  }
}

// All ranks read the same decisions before the same step, so the counts of applied steps are equal.
void Stepper::settle(std::size_t keep) {
  for (; in_flight_.size() > keep; in_flight_.pop_front()) {
    PendingStep& step = *in_flight_.front();
    resolve(step);
    refuse_differences(step);
    note_decision(step);
  }
}

void Stepper::refuse_differences(const PendingStep& step) const {
  name_differing_values(parts_.train.ranks, step.decision, step.values);
  throw_if_ranks_differ(step.decision);
}

void Stepper::note_decision(const PendingStep& step) {
  TrainState& train = parts_.train;
  const StepDecision& decision = step.decision;
  train.applied_steps = decision.applied_steps;
  gradient_scale_ = static_cast<float>(decision.loss_scale);
  report_error(step);
  parts_.checkpoints.note_news(step.number, {decision.save_busy != 0, decision.save_failed != 0});
  if (decision.non_finite > 0)
    report_skip(step);
  else
    train.skipped_in_a_row = 0;
  adjust_loss_scale(decision.non_finite > 0);
}

// Once per training run; rank 0 reports for its own encodings.
void Stepper::report_error(const PendingStep& step) {
  const TrainState& train = parts_.train;
  const auto& most = train.config.zero_core.wire.max_error;
  if (!most || step.largest_error <= *most || !train.is_root() ||
      std::exchange(error_reported_, true))
    return;
  std::fprintf(stderr,
               "zero: step %lld: what rank 0 has encoded of unit %s lost %.3g of its norm, more "
               "than zero_core.wire.max_error %g; larger errors of later steps are in the log\n",
               static_cast<long long>(step.number),
               train.layout().flat_unit(step.largest_error_unit).name.c_str(), step.largest_error,
               *most);
}

// The lowest rank that owns a non-finite element names the element, once per series of skips. On a
// GPU the gradients are already those of a later step. Too many in a row end the training run.
void Stepper::report_skip(const PendingStep& step) {
  TrainState& train = parts_.train;
  const int rank = train.runtime.world_rank();
  const bool mine = step.decision.first_non_finite_rank == rank;
  const std::string where = mine && on_host() ? locate_non_finite() : "";
  const std::string what = where.empty() ? std::to_string(step.decision.non_finite) +
                                               " non-finite gradients, the first of them"
                                         : "non-finite gradient in " + where + ",";
  if (mine && train.skipped_in_a_row == 0)
    std::fprintf(stderr, "zero: step %lld skipped on all ranks: %s owned by rank %d%s\n",
                 static_cast<long long>(step.number), what.c_str(), rank,
                 parts_.hidden.active()
                     ? "; in strict mode parameters read through a pointer after its scope are NaN"
                     : "");
  if (++train.skipped_in_a_row < most_skips_in_a_row || train.scaler.reaches_floor()) return;
  throw NumericError("gradients were not finite for " + std::to_string(most_skips_in_a_row) +
                     " steps in a row, last at step " + std::to_string(step.number) +
                     (where.empty() ? "" : " in " + where) +
                     "; lower the learning rate or clip gradients");
}

// The gradients of this step keep their loss scale (DeepSpeed divides by the new scale, and so
// halves the step whenever the scale grows).
void Stepper::adjust_loss_scale(bool overflow) {
  TrainState& train = parts_.train;
  train.scaler.update(overflow);
  const float scale = train.scaler.scale();
  if (overflow && scale != gradient_scale_ && train.is_root())
    std::fprintf(stderr, "zero: the loss scale falls from %g to %g\n",
                 static_cast<double>(gradient_scale_), static_cast<double>(scale));
}

GroupValues Stepper::next_values(std::string_view group, std::int64_t ahead) {
  settle();
  return parts_.train.all_groups().values(group, parts_.train.applied_steps + 1 + ahead);
}

// On a GPU the host's scaler follows the decisions that the host has read.
float Stepper::loss_scale() {
  if (parts_.train.scaler.dynamic()) settle();
  return parts_.train.scaler.scale();
}

StepResult result_of(PendingStep& step) {
  if (step.unresolved != nullptr) step.unresolved->resolve(step);
  const StepDecision& decision = step.decision;
  throw_if_ranks_differ(decision);
  if (decision.stop_requested != 0) told_to_stop = true;
  return {step.number,
          decision.loss,
          decision.norm,
          decision.learning_rate,
          static_cast<float>(decision.loss_scale),
          decision.apply == 0,
          decision.stop_requested != 0,
          step.compression_error};
}

}  // namespace zero::detail
